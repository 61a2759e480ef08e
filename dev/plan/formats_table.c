// formats_table: range and precision of the number formats: what follows from the exponent and mantissa bits of each.
#include "dev/plan/plan.h"

#include "base/check.h"

#include <math.h>

static const char *const NAME[FORMAT_COUNT] = {"fp32", "tf32", "bf16", "fp16", "fp8 E4M3", "fp8 E5M2"};
static const char *const USE[FORMAT_COUNT] = {
    "master weights, optimizer, sums",
    "inputs of fp32 matmuls on tensor cores",
    "weights, activations, gradients",
    "the same, with loss scaling",
    "inputs of matmuls: weights, activations",
    "inputs of matmuls: gradients",
};

FormatInfo formats_table_info(Format f)
{
    check(f >= 0 && f < FORMAT_COUNT);
    const FormatLayout l = FORMATS_LAYOUT[f];
    int bias = formats_bias(f), mantissa = (int)l.mantissa;
    return (FormatInfo){
        .name = NAME[f],
        .use = USE[f],
        .bits = 1 + (int)l.exponent + mantissa,
        .exponent = (int)l.exponent,
        .mantissa = mantissa,
        .bias = bias,
        .has_inf = l.has_inf,
        .max = formats_max(f),
        .min_normal = ldexp(1, 1 - bias),
        .min_denormal = ldexp(1, 1 - bias - mantissa),
        .epsilon = ldexp(1, -mantissa),
        .digits = (mantissa + 1) * log10(2),
    };
}

void formats_table_print(FILE *out)
{
    fprintf(out, "%-8s %4s %4s %4s %5s %4s %11s %15s %16s %13s %7s  %s\n", "format", "bits", "exp", "man",
            "bias", "Inf", "max", "min normal", "min denormal", "epsilon", "digits", "used for");
    for (int f = 0; f < FORMAT_COUNT; f++) {
        FormatInfo i = formats_table_info((Format)f);
        char normal[32], denormal[32], epsilon[32];
        snprintf(normal, sizeof normal, "2^%d %.1e", ilogb(i.min_normal), i.min_normal);
        snprintf(denormal, sizeof denormal, "2^%d %.1e", ilogb(i.min_denormal), i.min_denormal);
        snprintf(epsilon, sizeof epsilon, "2^%d %.1e", ilogb(i.epsilon), i.epsilon);
        fprintf(out, "%-8s %4d %4d %4d %5d %4s %11.6g %15s %16s %13s %7.1f  %s\n", i.name, i.bits, i.exponent,
                i.mantissa, i.bias, i.has_inf ? "yes" : "no", i.max, normal, denormal, epsilon, i.digits,
                i.use);
    }
}
