// __half for g++: IEEE's 16-bit type, rounded to nearest even.
#pragma once
#include <cmath>
#include <cstring>

struct __half {
    unsigned short bits;

    __half() = default;
    explicit __half(float value) {
        unsigned whole;
        std::memcpy(&whole, &value, 4);
        const unsigned sign = whole >> 16 & 0x8000u, magnitude = whole & 0x7fffffffu;
        if (magnitude > 0x7f800000u) {  // NaN
            bits = (unsigned short)(sign | 0x7e00u);
        } else if (magnitude >= 0x477ff000u) {  // rounds to more than the greatest number
            bits = (unsigned short)(sign | 0x7c00u);
        } else if (magnitude >= 0x38800000u) {  // a normal number
            const unsigned moved = magnitude - 0x38000000u;
            bits = (unsigned short)(sign | (moved + 0xfffu + (moved >> 13 & 1u)) >> 13);
        } else {  // a multiple of 2^-24
            bits = (unsigned short)(sign | (unsigned)std::nearbyint(std::fabs(value) * 16777216.0f));
        }
    }
    operator float() const {
        const unsigned exponent = bits >> 10 & 31u, fraction = bits & 1023u;
        float value;
        if (exponent == 31)
            value = fraction ? std::nanf("") : INFINITY;
        else
            value = std::ldexp((float)(exponent ? fraction + 1024u : fraction), (int)(exponent ? exponent : 1u) - 25);
        return bits & 0x8000u ? -value : value;
    }
};
