// The parameter buffer: what changes from step to step.

layout(set = 0, binding = 0, std430) readonly buffer Params { uint params[]; };

const uint ROW_RECORDS = 1024;
const uint OUTPUT_ROWS = 5120;

uint step_rows() { return params[0]; }
uint step_outputs() { return params[1]; }
uint step_choices() { return params[4]; }
uint row_token(uint r) { return params[ROW_RECORDS + 8 * r]; }
uint row_position(uint r) { return params[ROW_RECORDS + 8 * r + 1]; }
uint row_slot(uint r) { return params[ROW_RECORDS + 8 * r + 2]; }
uint row_visible(uint r) { return params[ROW_RECORDS + 8 * r + 3]; }
uint output_row(uint o) { return params[OUTPUT_ROWS + o]; }
