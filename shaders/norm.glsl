// 1 / sqrt of a mean square, for root-mean-square norms.

float inverse_rms(float sum_squares, uint n, float eps) { return 1.0 / sqrt(sum_squares / float(n) + eps); }
