// Gated units and the functions they need. The built-in tanh loses all relative accuracy near zero.

const uint GLU_SILU = 0;
const uint GLU_GELU = 1;
const uint GLU_SITU = 2;
const uint GLU_CLAMPED = 3;

float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }

float silu(float x) { return x / (1.0 + exp(-x)); }

// Continued fraction below 0.7 (error 3e-9), exponential above. NaN stays NaN.
float tanh_exact(float x) {
    float a = abs(x);
    if (a < 0.7) {
        float q = x * x;
        return x * fma(q, q + 105.0, 945.0) / fma(q, fma(q, 15.0, 420.0), 945.0);
    }
    float t = a > 10.0 ? 1.0 : 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    return x < 0.0 ? -t : t;
}

// p0 and p1: beta and linear_beta of situ, the limit of clamped.
float glu(uint kind, float g, float u, float p0, float p1) {
    // (1 + tanh t) / 2 is sigmoid(2 t), which does not cancel.
    if (kind == GLU_GELU) return g * sigmoid(1.5957691216 * (g + 0.044715 * g * g * g)) * u;
    if (kind == GLU_SITU) return p0 * tanh_exact(g / p0) * sigmoid(g) * (p1 * tanh_exact(u / p1));
    // By comparisons: min and clamp may take NaN for a bound.
    if (kind == GLU_CLAMPED) return silu(g > p0 ? p0 : g) * (u > p0 ? p0 : u < -p0 ? -p0 : u);
    return silu(g) * u;
}
