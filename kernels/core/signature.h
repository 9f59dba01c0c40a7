// Computes: the signature of a launch: the values that fields of its samples take, one bit per field and value. A
//           kernel compiled for a signature (CUAUG_SIGNATURE) lacks the code for other values; it computes the same
//           bits. Without CUAUG_SIGNATURE, a kernel runs everything.
// Threads:  none; conditions are constants where the signature leaves no choice.
// Reference: cuaug/devices/specialize.py compiles kernels for signatures.
// Tests:    tests/kernels/test_signatures.py.
#pragma once
#include "plan.h"

#if !defined(CUAUG_SIGNATURE)
#define CUAUG_SIGNATURE 0xffffffffffffffffull
#endif

// How a pass finds the source of an output pixel. Neighborhoods beyond SEPARABLE count as COPY.
enum Sampling { RESAMPLE, COPY, WARP, DISPLACE };

// The values of one field: bits first ... first + count - 1 of a signature.
template <int first, int count>
struct FieldValues {
    static constexpr uint64 mask = ((uint64(1) << count) - 1) << first;
    static constexpr uint32 possible = uint32((CUAUG_SIGNATURE & mask) >> first);
    static constexpr int begin = first;
};
typedef FieldValues<0, 24> Operations;
typedef FieldValues<24, 4> SourceTypes;
typedef FieldValues<28, 4> TargetTypes;
typedef FieldValues<32, 6> Filters;
typedef FieldValues<38, 2> Antialiases;
typedef FieldValues<40, 5> Borders;  // before and after
typedef FieldValues<45, 5> Neighborhoods;
typedef FieldValues<50, 4> Samplings;
typedef FieldValues<54, 5> Measures;
typedef FieldValues<59, 5> PriorMeasures;  // of the pass before

template <class Field>
DEVICE constexpr uint64 bit(int value) {
    return uint64(1) << (Field::begin + value);
}

// Whether the field may have the value; a constant.
template <class Field>
DEVICE constexpr bool may_be(int value) {
    return Field::possible >> value & 1;
}

// Whether value == other; a constant if the signature leaves no choice.
template <class Field>
DEVICE bool is(int value, int other) {
    return may_be<Field>(other) && (Field::possible == uint32(1) << other || value == other);
}

DEVICE bool is_shift(const Axis& axis) {
    return axis.scale == 1.0 && axis.offset == 0.0 && axis.origin + axis.seen_low >= axis.low &&
           axis.origin + axis.seen_high <= axis.high;
}

// Whether each pixel of a pass is one source pixel: every filter gives it weight 1.
DEVICE bool only_copies(const Sample& sample) {
    return sample.neighborhood == NONE && !sample.warped && is_shift(sample.y) && is_shift(sample.x);
}

DEVICE int sampling_of(const Sample& sample) {
    if (sample.neighborhood > SEPARABLE) return COPY;
    if (sample.warped) return sample.field.rows > 0 ? DISPLACE : WARP;
    return only_copies(sample) ? COPY : RESAMPLE;
}

// The signature of one sample's pass.
DEVICE uint64 signature_of(const Sample& sample, const Op* ops) {
    uint64 signature = bit<SourceTypes>(sample.source_type) | bit<TargetTypes>(sample.target.type) |
                       bit<Filters>(sample.filter) | bit<Antialiases>(sample.antialias != 0) |
                       bit<Borders>(sample.before.border) | bit<Borders>(sample.after.border) |
                       bit<Neighborhoods>(sample.neighborhood) | bit<Samplings>(sampling_of(sample)) |
                       bit<Measures>(sample.measure.kind) | bit<PriorMeasures>(sample.measured.kind);
    for (int i = sample.op_begin; i < sample.op_end; ++i) signature |= bit<Operations>(ops[i].code);
    return signature;
}

// Whether the entry point of cuda/resample.cu runs every pass of a signature: uint8 resampled or copied, then
// scaled and erased.
DEVICE bool is_resample_signature(uint64 signature) {
    constexpr uint64 allowed = bit<Operations>(SCALE) | bit<Operations>(ERASE) | bit<SourceTypes>(UINT8) |
                               TargetTypes::mask | Filters::mask | Antialiases::mask | Borders::mask |
                               bit<Neighborhoods>(NONE) | bit<Neighborhoods>(SEPARABLE) | bit<Samplings>(RESAMPLE) |
                               bit<Samplings>(COPY) | bit<Measures>(NOTHING) | bit<PriorMeasures>(NOTHING);
    return (signature & ~allowed) == 0;
}
