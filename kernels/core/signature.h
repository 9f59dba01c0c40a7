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
static_assert(OPERATION_COUNT <= 24, "ops.def has more operations than a signature has bits: move the fields below up");
typedef FieldValues<24, 2> SourceTypes;     // UINT8 or floats
constexpr uint64 PACKED = uint64(1) << 26;  // some targets hold patches, or images padded to the largest
typedef FieldValues<27, 4> TargetTypes;
typedef FieldValues<31, 6> Filters;
typedef FieldValues<37, 3> Antialiases;  // X_FIRST is Y_FIRST too
typedef FieldValues<40, 5> Borders;      // before and after
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

// Whether targets may be PACKED; a constant. resample.cu never runs such passes: their stores take registers.
#if defined(CUAUG_NEVER_PACKED)
constexpr bool MAY_BE_PACKED = false;
#else
constexpr bool MAY_BE_PACKED = CUAUG_SIGNATURE & PACKED;
#endif

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

// Whether a pass that resamples is Pillow's resize.
DEVICE bool resizes_levels(const Sample& sample) {
    return is<Antialiases>(min(sample.antialias, int(X_FIRST)), X_FIRST);
}

// The signature of one sample's pass.
DEVICE uint64 signature_of(const Sample& sample, const Op* ops) {
    uint64 signature = bit<SourceTypes>(sample.source_type != UINT8) | bit<TargetTypes>(sample.target.type) |
                       bit<Filters>(sample.filter) | bit<Antialiases>(min(sample.antialias, int(X_FIRST))) |
                       bit<Borders>(sample.before.border) | bit<Borders>(sample.after.border) |
                       bit<Neighborhoods>(sample.neighborhood) | bit<Samplings>(sampling_of(sample)) |
                       bit<Measures>(sample.measure.kind) | bit<PriorMeasures>(sample.measured.kind);
    if (sample.target.pitch > 0) signature |= PACKED;
    for (int i = sample.op_begin; i < sample.op_end; ++i) signature |= bit<Operations>(ops[i].code);
    return signature;
}

// Whether the entry point of cuda/resample.cu runs every pass of a signature: uint8 resampled or copied, then scaled,
// normalized and erased. Only one that is compiled for the signature runs Pillow's resizes.
DEVICE bool is_resample_signature(uint64 signature, bool specialized) {
    if (!specialized && (signature & bit<Antialiases>(X_FIRST))) return false;
    constexpr uint64 allowed = bit<Operations>(SCALE) | bit<Operations>(NORMALIZE) | bit<Operations>(ERASE) |
                               bit<SourceTypes>(UINT8) | TargetTypes::mask | Filters::mask | Antialiases::mask |
                               Borders::mask | bit<Neighborhoods>(NONE) | bit<Neighborhoods>(SEPARABLE) |
                               bit<Samplings>(RESAMPLE) | bit<Samplings>(COPY) | bit<Measures>(NOTHING) |
                               bit<PriorMeasures>(NOTHING);
    return (signature & ~allowed) == 0;
}
