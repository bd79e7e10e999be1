// CUDA's language for g++: a block's threads are fibres of the calling thread, blocks run one after the other.
//
// It computes what a kernel computes and refuses what a GPU may hang on or read wrongly: a barrier that not all threads
// of a block reach, a shuffle that not all lanes of a warp reach. A warp runs as far as it gets before the next one does;
// even blocks run warps and threads in order, odd ones backwards: so a missing barrier shows. It says nothing about
// speed, memory order between blocks, or rounding of the functions (exp, tanh, ...). One grid at a time runs in a
// process: the caller sees to it.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

using std::erfc;
using std::exp;
using std::log;
using std::sqrt;
using std::tanh;

#define __global__
#define __device__
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
};

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

enum State { READY, AT_BARRIER, AT_SHUFFLE, DONE };

struct Fibre {
    jmp_buf place;  // jumps are quicker than swapcontext, which asks the system each time
    std::unique_ptr<char[]> stack;
    dim3 index;
    State state;
    unsigned shuffles;  // how many this thread has taken part in
};

static const size_t STACK = 64 * 1024;
static std::vector<Fibre> fibres;
static std::vector<double> slots;  // two for each thread: what it shows to its warp
static jmp_buf scheduler;
static ucontext_t start, back;
static unsigned current;
static void (*body)(void**);
static void** arguments;

static void pause(State why) {
    Fibre& fibre = fibres[current];
    fibre.state = why;
    if (!_setjmp(fibre.place)) _longjmp(scheduler, 1);
}

static void resume() {
    if (!_setjmp(scheduler)) _longjmp(fibres[current].place, 1);
}

static void begin() {
    if (!_setjmp(fibres[current].place)) swapcontext(&start, &back);  // the stack is set up: wait for the first resume
    for (;;) {  // a fibre runs one thread of each block
        body(arguments);
        pause(DONE);
    }
}

static void make_fibres(unsigned threads) {
    fibres = std::vector<Fibre>(threads);
    for (current = 0; current < threads; current++) {
        fibres[current].stack.reset(new char[STACK]);
        getcontext(&start);
        start.uc_stack.ss_sp = fibres[current].stack.get();
        start.uc_stack.ss_size = STACK;
        start.uc_link = nullptr;
        makecontext(&start, begin, 0);
        swapcontext(&back, &start);
    }
}

static unsigned count(unsigned begin, unsigned end, State state) {
    unsigned found = 0;
    for (unsigned i = begin; i < end; i++) found += fibres[i].state == state;
    return found;
}

static void let_go(unsigned begin, unsigned end) {
    for (unsigned i = begin; i < end; i++) fibres[i].state = READY;
}

// Runs a warp through its shuffles, until all its threads are done or wait at a barrier.
static const char* run_warp(unsigned begin, unsigned end, bool backwards) {
    for (;;) {
        for (unsigned k = begin; k < end; k++) {
            current = backwards ? begin + end - 1 - k : k;
            if (fibres[current].state == READY) {
                threadIdx = fibres[current].index;
                resume();
            }
        }
        const unsigned waiting = count(begin, end, AT_SHUFFLE);
        if (!waiting) return nullptr;
        if (waiting < 32) return "a shuffle was not reached by all lanes of its warp";
        let_go(begin, end);
    }
}

static const char* run_block(unsigned threads, bool backwards) {
    for (unsigned i = 0; i < threads; i++) {
        fibres[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        fibres[i].state = READY;
        fibres[i].shuffles = 0;
    }
    const unsigned warps = (threads + 31) / 32;
    for (;;) {
        for (unsigned k = 0; k < warps; k++) {
            const unsigned begin = 32 * (backwards ? warps - 1 - k : k);
            const unsigned end = begin + 32 < threads ? begin + 32 : threads;
            if (const char* error = run_warp(begin, end, backwards)) return error;
        }
        if (count(0, threads, DONE) == threads) return nullptr;
        if (count(0, threads, AT_BARRIER) < threads) return "a barrier was not reached by all threads of its block";
        let_go(0, threads);
    }
}

// Runs a grid; dims is (grid x, y, z, block x, y, z). Null, or what the kernel did wrong.
static const char* run(const unsigned* dims, void (*kernel)(void**), void** args) {
    gridDim = {dims[0], dims[1], dims[2]};
    blockDim = {dims[3], dims[4], dims[5]};
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    if (fibres.size() < threads) make_fibres(threads);
    slots.resize(2 * threads);
    body = kernel;
    arguments = args;
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                if (const char* error = run_block(threads, (x + y + z) % 2)) {
                    fibres.clear();  // some stand in the middle of the kernel
                    return error;
                }
            }
    return nullptr;
}

}  // namespace emulation

static inline void __syncthreads() { emulation::pause(emulation::AT_BARRIER); }

template <class Value>
Value __shfl_xor_sync(unsigned mask, Value value, int distance) {
    using namespace emulation;
    static_assert(sizeof(Value) <= sizeof(double), "a slot holds eight bytes");
    if (mask != 0xffffffffu) std::abort();  // only whole warps are emulated
    const unsigned turn = fibres[current].shuffles++ % 2;
    std::memcpy(&slots[2 * current + turn], &value, sizeof value);
    pause(AT_SHUFFLE);
    Value other;
    std::memcpy(&other, &slots[2 * (current ^ (unsigned)distance) + turn], sizeof other);
    return other;
}
