// Run CUDA C on a CPU: g++ compiles the sources of the cuda backend with this header (cupy/kernels.py adds launchers).
//
// Blocks run one after the other. Each thread of a block is a fiber with a stack of its own, and the fibers take turns:
// one runs until it waits for others at a barrier or in a shuffle. So barriers and shuffles mean what they mean on a
// device. A barrier that some threads never reach, or that threads reach in different lines, is an error, where a device
// would hang or go on with wrong numbers. Shared memory is filled with NaN before every block.
//
// What this cannot show: races between the threads of a block or between blocks, speed, and the limits of a device.
#pragma once
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("block_shared")))

struct Index {
  unsigned x, y, z;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

extern char __start_block_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_block_shared[] __attribute__((weak, visibility("hidden")));

namespace emulator {

constexpr int WARP = 32, MOST_THREADS = 1024;
// A stack is not a power of 2, so that the tops of all stacks are not in the same lines of the cache.
constexpr size_t STACK = (64 << 10) + 320, MOST_SHARED = 227 << 10, GUARD = 64;
constexpr unsigned char POISON = 0xff, CANARY = 0xa5;

// -- fibers -----------------------------------------------------------------------------------------------------------

#ifdef __x86_64__
struct Context {
  void* stack_pointer;
};

// Inlined, because a `ret` on another stack than its `call` is slow: processors predict where it goes. All registers are
// clobbered, so that the compiler saves those that it needs. Compile with -mno-red-zone.
__attribute__((always_inline)) static inline void switch_to(Context& from, Context& to) {
  register void* next asm("rsi") = to.stack_pointer;
  register void** saved asm("rdi") = &from.stack_pointer;
  asm volatile(
      "pushq %%rbp\n pushq %%rbx\n leaq 1f(%%rip), %%rax\n pushq %%rax\n movq %%rsp, (%%rdi)\n movq %%rsi, %%rsp\n"
      "popq %%rax\n jmp *%%rax\n 1: popq %%rbx\n popq %%rbp\n"
      : "+r"(next), "+r"(saved)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
        "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

static void prepare(Context& context, char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + STACK);
  *--top = nullptr;  // a return address for `entry`, which never returns; it also aligns the stack as a call does
  *--top = reinterpret_cast<void*>(entry);
  context.stack_pointer = top;
}
#else
struct Context {
  ucontext_t state;
};

static void switch_to(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

static void prepare(Context& context, char* stack, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = STACK;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}
#endif

struct Thread {
  Context context;
  Index index;
  const unsigned* awaited;  // the round of a meeting that has to change before the thread can go on; null: it can
  unsigned round;
  bool left;
};

// Where the threads of a block or of a warp wait for each other.
struct Meeting {
  unsigned round;
  int arrived, line;
  const char* name;
};

struct Warp {
  Meeting meeting;
  uint64_t sent[2][WARP];  // values of a shuffle; two rounds, as some lanes read one while others write the next
};

static Thread threads[MOST_THREADS];
static Warp warps[MOST_THREADS / WARP];
static Meeting barrier;
static Context outside;
static char* stacks;
static int count, current, left;
static bool backward;
static void (*kernel)(void**);
static void** arguments;
static char* error;
static size_t shared_bytes;
alignas(128) static char dynamic_memory[MOST_SHARED + GUARD];

[[noreturn]] static void fail(const char* format, ...) {
  va_list values;
  va_start(values, format);
  int used = snprintf(error, 512, "block (%u, %u): ", blockIdx.x, blockIdx.y);
  vsnprintf(error + used, 512 - used, format, values);
  va_end(values);
  switch_to(threads[current].context, outside);
  abort();  // nobody comes back to a thread of a failed block
}

__attribute__((always_inline)) static inline bool ready(int t) {
  const Thread& thread = threads[t];
  return !thread.left && (thread.awaited == nullptr || *thread.awaited != thread.round);
}

// Return the next thread that can run, or -1: first of the same warp, whose stacks are in the cache, then of the others.
static int next_ready() {
  int first = current / WARP * WARP, last = (count - first < WARP ? count : first + WARP) - 1, t = current;
  for (int tried = first; tried <= last; tried++) {
    t = backward ? (t == first ? last : t - 1) : (t == last ? first : t + 1);
    if (ready(t)) return t;
  }
  for (int tried = 0; tried < count; tried++) {
    t = backward ? (t == 0 ? count - 1 : t - 1) : (t == count - 1 ? 0 : t + 1);
    if (ready(t)) return t;
  }
  return -1;
}

__attribute__((always_inline)) static inline void go_to(int next) {
  Thread& last = threads[current];
  current = next;
  threads[next].awaited = nullptr;
  threadIdx = threads[next].index;
  switch_to(last.context, threads[next].context);
}

__attribute__((noinline)) static void run_next() {
  int next = next_ready();
  if (next < 0) {
    for (int t = 0; t < count; t++)
      if (!threads[t].left) {
        const Meeting& at = threads[t].awaited == &barrier.round ? barrier : warps[t / WARP].meeting;
        fail("threads wait at %s (line %d), which others never reach; %d of %d threads have left the kernel", at.name,
             at.line, left, count);
      }
  }
  go_to(next);
}

// Wait until all `expected` threads are here. All must have come to the same line.
__attribute__((always_inline)) static inline void meet(Meeting& at, int expected, const char* name, int line) {
  if (at.arrived == 0) at.name = name, at.line = line;
  if (at.line != line || at.name != name)
    fail("threads diverge: some are at %s (line %d), thread %d is at %s (line %d)", at.name, at.line, current, name, line);
  if (++at.arrived == expected) {
    at.arrived = 0;
    at.round++;
    return;
  }
  threads[current].awaited = &at.round;
  threads[current].round = at.round;
  int next = backward ? current - 1 : current + 1;  // nearly always ready
  if (next % WARP != (backward ? WARP - 1 : 0) && next >= 0 && next < count && ready(next))
    go_to(next);
  else
    run_next();
}

static void enter() {
  kernel(arguments);
  threads[current].left = true;
  if (++left == count) switch_to(threads[current].context, outside);
  run_next();
  abort();  // nobody comes back to a thread that has left
}

static void run_block() {
  memset(__start_block_shared, POISON, __stop_block_shared - __start_block_shared);
  memset(dynamic_memory, POISON, shared_bytes);
  memset(dynamic_memory + shared_bytes, CANARY, GUARD);
  memset(warps, 0, sizeof(warps));
  barrier = Meeting();
  left = 0;
  for (int t = 0; t < count; t++) {
    Thread& thread = threads[t];
    thread.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
    thread.awaited = nullptr;
    thread.left = false;
    memset(stacks + t * STACK, CANARY, GUARD);
    prepare(thread.context, stacks + t * STACK, enter);
  }
  current = backward ? count - 1 : 0;
  threadIdx = threads[current].index;
  switch_to(outside, threads[current].context);
  if (*error) return;
  for (size_t byte = 0; byte < GUARD; byte++) {
    if ((unsigned char)dynamic_memory[shared_bytes + byte] != CANARY)
      snprintf(error, 512, "block (%u, %u) writes beyond its dynamic shared memory", blockIdx.x, blockIdx.y);
    for (int t = 0; t < count; t++)
      if ((unsigned char)stacks[t * STACK + byte] != CANARY) snprintf(error, 512, "a thread's stack is too small");
  }
}

struct Launch {
  unsigned grid[3], block[3];
  uint64_t shared_bytes;
  int backward;  // run blocks and threads in the opposite order: the result must be the same
  char error[512];
};

static void run(Launch& launch, void (*chosen)(void**), void** given) {
  if (stacks == nullptr) stacks = static_cast<char*>(aligned_alloc(4096, STACK * MOST_THREADS));
  kernel = chosen, arguments = given, error = launch.error, backward = launch.backward;
  shared_bytes = launch.shared_bytes;
  gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
  blockDim = {launch.block[0], launch.block[1], launch.block[2]};
  count = blockDim.x * blockDim.y * blockDim.z;
  uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
  for (uint64_t b = 0; b < blocks && !*error; b++) {
    uint64_t at = backward ? blocks - 1 - b : b;
    blockIdx = {unsigned(at % gridDim.x), unsigned(at / gridDim.x % gridDim.y), unsigned(at / gridDim.x / gridDim.y)};
    run_block();
  }
}

// -- what kernels call ------------------------------------------------------------------------------------------------

static int warp_size() {
  int first = current / WARP * WARP;
  return count - first < WARP ? count - first : WARP;
}

static void check_mask(unsigned mask) {
  if (mask != 0xffffffffu) fail("the emulator knows shuffles of whole warps only, not the mask %x", mask);
}

template <typename T>
__attribute__((always_inline)) static inline T shuffle(unsigned mask, T value, int from, const char* name, int line) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  check_mask(mask);
  Warp& warp = warps[current / WARP];
  uint64_t* sent = warp.sent[warp.meeting.round % 2];
  memcpy(sent + current % WARP, &value, sizeof(T));
  meet(warp.meeting, warp_size(), name, line);
  memcpy(&value, sent + from % WARP, sizeof(T));
  return value;
}

}  // namespace emulator

#define __syncthreads() emulator::meet(emulator::barrier, emulator::count, "__syncthreads", __LINE__)
#define __syncwarp() \
  emulator::meet(emulator::warps[emulator::current / 32].meeting, emulator::warp_size(), "__syncwarp", __LINE__)
#define __shfl_sync(mask, value, lane) emulator::shuffle(mask, value, lane, "__shfl_sync", __LINE__)
#define __shfl_xor_sync(mask, value, bits) \
  emulator::shuffle(mask, value, emulator::current % 32 ^ (bits), "__shfl_xor_sync", __LINE__)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <typename T>
static inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
static inline T max(T a, T b) {
  return a < b ? b : a;
}

template <typename T>
static inline T atomicAdd(T* at, T value) {
  T before = *at;
  *at += value;
  return before;
}
template <typename T>
static inline T atomicExch(T* at, T value) {
  T before = *at;
  *at = value;
  return before;
}

template <typename To, typename From>
static inline To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To out;
  memcpy(&out, &value, sizeof(To));
  return out;
}
static inline int __float_as_int(float value) { return same_bits<int>(value); }
static inline unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }
static inline float __int_as_float(int bits) { return same_bits<float>(bits); }
static inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
// -ffp-contract=off: the compiler fuses no multiplication with an addition.
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }

// -- half precision: only its conversion to float, as kernels only read it -------------------------------------------

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
static inline float __half2float(__half half) {
  unsigned sign = (half.bits & 0x8000u) << 16, exponent = half.bits >> 10 & 31, fraction = half.bits & 1023;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  float size = exponent == 0 ? std::ldexp((float)fraction, -24) : std::ldexp((float)(fraction | 1024), (int)exponent - 25);
  return sign ? -size : size;
}
static inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }
