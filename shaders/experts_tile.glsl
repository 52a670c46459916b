// What a workgroup of an expert's tile does (group.comp): up to ROWS items of one expert, an item being a row of the step and
// a rank, row * k + rank.
layout(set = 0, binding = 2, std430) readonly buffer Items { uint items[]; };
layout(set = 0, binding = 3, std430) readonly buffer Tiles { uvec4 tiles[]; };

const uint ROWS = 32;

shared uint tile_items[ROWS];
// Where each item's input begins.
shared uint begins[ROWS];

// The workgroup's tile: its expert, where it begins among the items, and how many it has: none for workgroups that the step needs
// fewer tiles than.
uvec3 my_tile() {
    uvec3 tile = tiles[1 + gl_WorkGroupID.y].xyz;
    return gl_WorkGroupID.y < tiles[0].x ? tile : uvec3(0);
}

// Fetches the tile's items; `product` begins with the barrier that this needs.
void take_items(uvec3 tile) {
    for (uint i = gl_LocalInvocationIndex; i < tile.z; i += LOCAL) {
        uint item = items[tile.y + i];
        tile_items[i] = item;
        begins[i] = item_begin(item);
    }
}
