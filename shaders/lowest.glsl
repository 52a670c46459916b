// Below all scores, and finite, so that no infinity meets another.

const float LOWEST = -3.4e38;
