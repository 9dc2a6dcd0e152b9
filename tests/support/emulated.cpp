// Kernels of another processor, run by an emulator for a program of this one. Both have the same addresses: memory that a
// kernel asks for and that is not there yet is copied from the program, which gives it as an open file, and what the kernel
// has changed is written back when it returns. Linked with the kernels; emulated.py is the other side of the pipe.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
void headstart_activate(), headstart_forward(), headstart_gather(), headstart_gather_rows(), headstart_grouped_bytes(),
    headstart_layout(), headstart_multiply(), headstart_nibbles(), headstart_pack(), headstart_pack_blocks(),
    headstart_pack_grouped(),
    headstart_pack_whole(), headstart_packed_bytes(), headstart_read(), headstart_round_groups(),
    headstart_rows(), headstart_rows_of_keys(), headstart_supported(), headstart_time_parts(),
    headstart_unpack_grouped(), headstart_use_openmp();
}

// The C library's takes an instruction (DC ZVA) after whose faults QEMU 7.2 goes on at a wrong place.
extern "C" __attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memset(void *to, int byte, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)to)[i] = uint8_t(byte);
    return to;
}

namespace {

struct Named {
    const char *name;
    void (*function)();
};

#define NAMED(name) {#name, headstart_##name}
const Named KERNELS[] = {NAMED(activate),     NAMED(forward),      NAMED(gather),       NAMED(gather_rows),
                         NAMED(grouped_bytes), NAMED(layout),       NAMED(multiply),     NAMED(nibbles),
                         NAMED(pack),          NAMED(pack_blocks),  NAMED(pack_grouped), NAMED(pack_whole),   NAMED(packed_bytes),
                         NAMED(read),          NAMED(round_groups), NAMED(rows_of_keys), NAMED(rows),         NAMED(supported),    NAMED(time_parts),
                         NAMED(unpack_grouped), NAMED(use_openmp)};

constexpr uint64_t PAGE = 4096;
constexpr int64_t MOST = 1 << 18;  // pages of one call: 1 GB
constexpr int64_t AHEAD = 16;      // pages copied at once: a fault costs an emulator more than they do

// Pages of the program that are here, by hash of their address; `before` is what one held before it was written to.
struct Page {
    uint64_t address;
    uint8_t *before;
};
Page pages[2 * MOST];
int64_t places[MOST], count;
uint8_t *room;  // of what is kept of pages
int memory;     // the program's, as a file
volatile int busy;

void all(bool writes, void *at, size_t bytes) {
    for (uint8_t *next = (uint8_t *)at; bytes > 0;) {
        const ssize_t done = writes ? write(1, next, bytes) : read(0, next, bytes);
        if (done <= 0) _exit(3);
        next += done;
        bytes -= size_t(done);
    }
}

template <class T>
void send(T value) { all(true, &value, sizeof value); }

Page &page_of(uint64_t address) {
    uint64_t place = address / PAGE * 0x9E3779B97F4A7C15u >> 45;
    while (pages[place].address && pages[place].address != address) place = (place + 1) % (2 * MOST);
    if (!pages[place].address) places[count] = int64_t(place);
    return pages[place];
}

// How many pages from this one on are not here, and are not the driver's own either.
int64_t absent(uint64_t address) {
    for (int64_t n = 0; n < AHEAD; n++, address += PAGE)
        if (page_of(address).address || !msync((void *)address, PAGE, MS_ASYNC) || errno != ENOMEM) return n;
    return AHEAD;
}

// A page that is not here is copied, and those behind it. One that is here was to be written to, or has just come for
// another thread.
void fault(int, siginfo_t *info, void *) {
    const uint64_t address = uint64_t(info->si_addr) / PAGE * PAGE;
    while (__sync_lock_test_and_set(&busy, 1)) {}
    Page &page = page_of(address);
    if (page.address && !page.before) {
        page.before = room;
        room += PAGE;
        std::memcpy(page.before, (const void *)address, PAGE);
        mprotect((void *)address, PAGE, PROT_READ | PROT_WRITE);
    } else if (!page.address) {
        const size_t most = size_t(absent(address)) * PAGE;
        void *const whole = mmap(nullptr, AHEAD * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const ssize_t bytes = address ? pread(memory, whole, most, off_t(address)) / ssize_t(PAGE) * ssize_t(PAGE) : 0;
        if (bytes <= 0 || count + AHEAD > MOST) {
            std::fprintf(stderr, "a kernel asks for %p, which is no memory of the program\n", info->si_addr);
            _exit(4);
        }
        mprotect(whole, size_t(bytes), PROT_READ);
        // Other threads see all of it or nothing.
        mremap(whole, size_t(bytes), size_t(bytes), MREMAP_MAYMOVE | MREMAP_FIXED, (void *)address);
        munmap((uint8_t *)whole + bytes, size_t(AHEAD * PAGE - bytes));
        for (uint64_t each = address; each < address + uint64_t(bytes); each += PAGE, count++) page_of(each).address = each;
    }
    __sync_lock_release(&busy);
}

// Writes what has changed, byte by byte: the rest of a page may have changed in the program meanwhile.
void give_back() {
    for (int64_t i = 0; i < count; i++) {
        Page &page = pages[places[i]];
        const uint8_t *now = (const uint8_t *)page.address;
        for (uint64_t from = 0, to; page.before && from < PAGE; from = to) {
            for (to = from; to < PAGE && (now[to] != page.before[to]) == (now[from] != page.before[from]);) to++;
            if (now[from] == page.before[from]) continue;
            if (pwrite(memory, now + from, to - from, off_t(page.address + from)) != ssize_t(to - from)) _exit(3);
        }
        munmap((void *)page.address, PAGE);
        page = Page{};
    }
    count = 0;
}

int64_t call(void (*function)(), const int64_t *a) {
    typedef int64_t (*Any)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
    return Any(function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
}

}  // namespace

int main(int, char **arguments) {
    memory = std::atoi(arguments[1]);
    uint8_t *const kept = (uint8_t *)mmap(nullptr, MOST * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct sigaction action = {};
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    for (;;) {
        struct {
            char name[24];
            int64_t arguments[10];
            int64_t text;
        } asked;
        if (read(0, &asked, 1) <= 0) return 0;
        all(false, (char *)&asked + 1, sizeof asked - 1);
        const Named *kernel = std::find_if(std::begin(KERNELS), std::end(KERNELS), [&](const Named &each) {
            return !std::strcmp(each.name, asked.name);
        });
        if (kernel == std::end(KERNELS)) {
            std::fprintf(stderr, "the driver knows no kernel %s\n", asked.name);
            return 5;
        }
        room = kept;
        const int64_t result = call(kernel->function, asked.arguments);
        if (!asked.text) give_back();
        send(asked.text ? int64_t(std::strlen((const char *)result)) : result);
        if (asked.text) all(true, (void *)result, std::strlen((const char *)result));
    }
}
