// Where a state keeps a row. Rings wrap here; for caches that hold all positions the remainder changes nothing.

uint row_addr(uint slot, uint row, uint cap, uint width) { return (slot * cap + row % cap) * width; }

// The same where a state has a row for every position, without a division.
uint whole_addr(uint slot, uint row, uint cap, uint width) { return (slot * cap + row) * width; }
