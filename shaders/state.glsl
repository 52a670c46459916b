// Where a state keeps a row. Rings wrap here; for caches that hold all positions the remainder changes nothing.

uint row_addr(uint slot, uint row, uint cap, uint width) { return (slot * cap + row % cap) * width; }
