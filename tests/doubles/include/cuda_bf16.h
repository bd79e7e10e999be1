// __nv_bfloat16 for g++: the upper half of a float, rounded to nearest even.
#pragma once
#include <cstring>

struct __nv_bfloat16 {
    unsigned short bits;

    __nv_bfloat16() = default;
    explicit __nv_bfloat16(float value) {
        unsigned whole;
        std::memcpy(&whole, &value, 4);
        bits = (unsigned short)(value != value ? 0x7fc0u : (whole + 0x7fffu + (whole >> 16 & 1u)) >> 16);
    }
    operator float() const {
        const unsigned whole = (unsigned)bits << 16;
        float value;
        std::memcpy(&value, &whole, 4);
        return value;
    }
};
