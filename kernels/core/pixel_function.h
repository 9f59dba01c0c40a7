// Computes: pixel functions: operations that users write in Python. cuaug/ops/ translates one into instructions
//           (instructions.def), which `interpret` runs everywhere, and into C++, which calls the functions below.
//           Compiled code replaces the interpreter where it is there: on CUDA in a chain's own kernel, on the CPU at
//           the address in Op::function. Both compute the same bits.
// Threads:  one pixel block per thread.
// Reference: exp, log, sin and cos: core/fast_math.h.
// Tests:    tests/ops against NumPy, bit by bit.
#pragma once
#include "core/philox.h"
#include "core/pixel_block.h"

typedef Vec<float> Number;
typedef Vec<int> Truth;  // on the CPU 0 or -1 in each lane, on CUDA 0 or 1

DEVICE Number exp_of(Number x) { return fast_exp2(x * 1.44269504f); }  // log2 e
// Numbers below the least normal one count as it.
DEVICE Number log_of(Number x) { return fast_log2(max(x, splat(1.17549435e-38f))) * 0.69314718f; }  // ln 2
DEVICE Number cos_of_turns(Number turns) { return fast_cos_turns(turns - floor(turns)); }
DEVICE Number cos_of(Number x) { return cos_of_turns(x * 0.15915494f); }  // 1 / (2 pi)
DEVICE Number sin_of(Number x) { return cos_of_turns(x * 0.15915494f - 0.25f); }

enum class Instruction : uint32 {
    END,        // the results are registers to, a, b
    CONSTANT,   // the second word
    PARAMETER,  // Op::a[a]
    ROW,
    COLUMN,
    NORMALS,  // three standard normal draws, one per channel, in registers to, a, b; the second word numbers the call
    TAP,      // a pixel of the source, in registers to, a, b; the second word has its distance: rows below, and columns
              // to the right, of 16 bits each
    SELECT,   // a ? b : c, c in the second word
#define UNARY(name, ...) name,
#define BINARY(name, ...) name,
#include "instructions.def"
#undef UNARY
#undef BINARY
};

// One function per instruction, for compiled code.
#define NUMBER float
#define TRUTH int
#define UNARY(name, result, operand, value) \
    DEVICE Vec<result> run_##name(Vec<operand> a) { return Vec<result>(value); }
#define BINARY(name, result, operands, value) \
    DEVICE Vec<result> run_##name(Vec<operands> a, Vec<operands> b) { return Vec<result>(value); }
#include "instructions.def"
#undef UNARY
#undef BINARY
DEVICE Number run_SELECT(Truth a, Number b, Number c) { return a ? b : c; }

// first + step * (p, p + 1, ...): rows or columns of VEC_LANES pixels.
DEVICE Number place_numbers(int first, int step, int p) {
    float numbers[VEC_LANES];
    for (int i = 0; i < VEC_LANES; ++i) numbers[i] = float(first + (p + i) * step);
    return load_vec(numbers);
}
DEVICE Number run_ROW(Place at, int p) { return place_numbers(at.y, at.dy, p); }
DEVICE Number run_COLUMN(Place at, int p) { return place_numbers(at.x, at.dx, p); }

DEVICE void standard_normals(const uint32 (*words)[PIXELS], float* values) {
    for (int p = 0; p < PIXELS; p += VEC_LANES)
        store(values + p, standard_normal(load_vec(&words[0][p]), load_vec(&words[1][p])));
}

// The draws of call number `call` in a function.
DEVICE void run_NORMALS(const Op& op, Place at, uint32 call, float* red, float* green, float* blue) {
    RandomWords a, b;
    philox_block(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 2 * call, a);
    philox_block(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 2 * call + 1, b);
    standard_normals(a.first, red);
    standard_normals(a.last, green);
    standard_normals(b.first, blue);
}

// v = the pixels of the source dy rows below a block's and dx columns to the right, under the border. Only passes that
// copy the whole image read them, so positions in the source are those in the image.
template <class T>
DEVICE void load_tap(const Sample& sample, Place at, int dy, int dx, float (*v)[PIXELS]) {
    const int y = at.y + dy, x = at.x + dx;
    if (y >= sample.y.inner_low && y < sample.y.inner_high && x >= sample.x.inner_low &&
        x + PIXELS <= sample.x.inner_high)
        unpack(row_of<T>(sample, y) + 3 * int64(x - sample.x.held_low), v);
    else
        for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = load_bordered<T>(sample, y, x + p, c);
}

// Functions see black as 0 and white as 1.
DEVICE Number load_input(const Op& op, const PixelBlock& v, int c, int p) { return load_vec(&v[c][p]) * op.per_white; }
DEVICE void store_result(const Op& op, PixelBlock& v, int c, int p, Number value) {
    store(&v[c][p], op.limit < 0.0f ? value : saturate(value, 1.0f) * op.limit);
}

DEVICE void run_TAP(const Op& op, const Sample& sample, Place at, int dy, int dx, float (*v)[PIXELS]) {
    if (is<SourceTypes>(sample.source_type, UINT8))
        load_tap<uint8>(sample, at, dy, dx, v);
    else
        load_tap<float>(sample, at, dy, dx, v);
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += VEC_LANES) store(&v[c][p], load_vec(&v[c][p]) * op.per_white);
}

#if !defined(CUAUG_COMPILED_FUNCTION)  // a program of cuaug/devices/cpu_functions.py
// Registers of the interpreter; a function that needs more is refused (cuaug/ops/generation.py).
constexpr int REGISTERS = 48;

struct PixelValues {
    PixelBlock v;
};

template <class T>
DEVICE Vec<T> load_register(const float* values) {
    return load_as<Vec<T> >(values);
}

DEVICE void fill_register(float* to, float value) { FOR_PIXELS(p) to[p] = value; }

// Runs instructions of two words each: code, then to, a and b of 8 bits from the second byte on.
NEVER_INLINE PixelValues interpret(const Op& op, const Sample& sample, const float* words, Place at,
                                   PixelValues values) {
    float registers[REGISTERS][PIXELS] CACHE_ALIGNED;
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += VEC_LANES) store(&registers[c][p], load_input(op, values.v, c, p));
    NO_UNROLL
    for (;; words += 2) {
        const uint32 word = float_bits(words[0]), a_number = word >> 16 & 255;
        float *const to = registers[word >> 8 & 255], *const a = registers[a_number], *const b = registers[word >> 24];
        switch (Instruction(word & 255)) {
            case Instruction::END: {
                const float* const results[3] = {to, a, b};
                for (int c = 0; c < 3; ++c)
                    for (int p = 0; p < PIXELS; p += VEC_LANES)
                        store_result(op, values.v, c, p, load_vec(results[c] + p));
                return values;
            }
            case Instruction::CONSTANT: fill_register(to, words[1]); break;
            case Instruction::PARAMETER: fill_register(to, op.a[a_number]); break;
            case Instruction::ROW:
                for (int p = 0; p < PIXELS; p += VEC_LANES) store(to + p, run_ROW(at, p));
                break;
            case Instruction::COLUMN:
                for (int p = 0; p < PIXELS; p += VEC_LANES) store(to + p, run_COLUMN(at, p));
                break;
            case Instruction::NORMALS: run_NORMALS(op, at, float_bits(words[1]), to, a, b); break;
            case Instruction::TAP: {
                const uint32 distance = float_bits(words[1]);
                float taps[3][PIXELS];
                run_TAP(op, sample, at, int(distance << 16) >> 16, int(distance) >> 16, taps);
                for (int p = 0; p < PIXELS; ++p) to[p] = taps[0][p], a[p] = taps[1][p], b[p] = taps[2][p];
                break;
            }
            case Instruction::SELECT: {
                const float* const c = registers[float_bits(words[1])];
                for (int p = 0; p < PIXELS; p += VEC_LANES)
                    store(to + p, run_SELECT(load_register<int>(a + p), load_vec(b + p), load_vec(c + p)));
                break;
            }
#define UNARY(name, result, operand, value)                                                                      \
    case Instruction::name:                                                                                      \
        for (int p = 0; p < PIXELS; p += VEC_LANES) store_as(to + p, run_##name(load_register<operand>(a + p))); \
        break;
#define BINARY(name, result, operands, value)                                                             \
    case Instruction::name:                                                                               \
        for (int p = 0; p < PIXELS; p += VEC_LANES)                                                       \
            store_as(to + p, run_##name(load_register<operands>(a + p), load_register<operands>(b + p))); \
        break;
#include "instructions.def"
#undef UNARY
#undef BINARY
#undef NUMBER
#undef TRUTH
        }
    }
}

#if defined(CUAUG_PIXEL_FUNCTIONS)
#include "pixel_functions.h"  // made by cuaug/devices/nvrtc.py: run_compiled, for the functions of a chain
#endif

// Runs the machine code at Op::function; returns whether there is some. cpu/fast_paths.h defines it; on CUDA it does
// nothing (cuda/fast_paths.h), as `run_compiled` has the functions of a chain.
DEVICE bool run_machine_code(const Op& op, const Sample& sample, Place at, PixelBlock& v);

DEVICE void run_pixel_function(const Op& op, const Sample& sample, const float* tables, Place at, PixelBlock& v) {
#if defined(CUAUG_PIXEL_FUNCTIONS)
    run_compiled(op, sample, at, v);
#else
    if (run_machine_code(op, sample, at, v)) return;
    PixelValues values;
    for (int c = 0; c < 3; ++c) FOR_PIXELS(p) values.v[c][p] = v[c][p];
    values = interpret(op, sample, tables + op.table, at, values);
    for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = values.v[c][p];
#endif
}
#endif
