// Where the members of a team come from: PyTorch's own threads, where its OpenMP runtime can be had, or a crew of threads of
// our own.
//
// OpenMP's threads wait for their next work in a loop of some milliseconds, so a crew beside them would have to share its
// cores with it after each of PyTorch's operations. No source is compiled with OpenMP: all that is asked of the runtime is to
// call a function on so many threads.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#if !defined(_WIN32)
#include <unistd.h>
#endif

#include "team.h"

#if defined(_WIN32)
inline int64_t process() { return 0; }  // no process of Windows begins as a copy of another
#else
inline int64_t process() { return getpid(); }
#endif

// A function that is to be called by each member, and what of.
struct Task {
    void (*call)(void *, int64_t number);
    void *of;
};

// -- PyTorch's threads -------------------------------------------------------------------------------------------------

// Of the GNU OpenMP runtime, or null: GOMP_parallel and omp_get_thread_num. A copy of this process made by fork has the
// runtime, but not its threads.
struct OpenMP {
    void (*parallel)(void (*)(void *), void *, unsigned threads, unsigned flags) = nullptr;
    int (*number)() = nullptr;
    int64_t found_in = 0;

    bool here() const { return parallel && found_in == process(); }
};

inline OpenMP openmp;

// -- threads of our own ------------------------------------------------------------------------------------------------

// Threads that wait for tasks of the thread that they belong to. They look out for a task for a millisecond, then sleep. The
// owner does not wait for one that has not come to its task by the time that the others are done.
class Crew {
  public:
    Crew() : made_in(process()) {}

    const int64_t made_in;

    // As many threads as there can be, up to so many.
    int64_t grow(int64_t count, const std::shared_ptr<Crew> &self) {
        try {
            while (int64_t(posts.size()) < count) {
                posts.push_back(std::make_unique<Post>());
                try {
                    std::thread([self, post = posts.back().get()] { self->work(*post); }).detach();
                } catch (...) {
                    posts.pop_back();
                    throw;
                }
            }
        } catch (const std::exception &) {  // no memory, or no more threads: then there are fewer
        }
        return int64_t(posts.size()) < count ? int64_t(posts.size()) : count;
    }

    // Members 1 to count are of the crew, member 0 is the caller.
    void run(const Task &task, int64_t count) {
        for (int64_t n = 0; n < count; n++) {
            posts[n]->task = task;
            posts[n]->number = n + 1;
            posts[n]->state.store(CALLED);
        }
        if (sleepers.load()) {
            { std::lock_guard<std::mutex> lock(mutex); }  // one that has found no task is asleep by now
            wake.notify_all();
        }
        task.call(task.of, 0);
        for (int64_t n = 0; n < count; n++) {
            int called = CALLED;
            if (posts[n]->state.compare_exchange_strong(called, FREE)) continue;
            for (int spins = 1; posts[n]->state.load(std::memory_order_acquire) != FREE; spins++, relax())
                if (spins % 1024 == 0) std::this_thread::yield();
        }
    }

    void end() {
        ended = true;
        { std::lock_guard<std::mutex> lock(mutex); }
        wake.notify_all();
    }

  private:
    enum { FREE, CALLED, BUSY };

    struct alignas(64) Post {
        std::atomic<int> state{FREE};
        Task task{};
        int64_t number = 0;
    };

    void work(Post &post) {
        while (expect(post)) {
            int called = CALLED;
            if (!post.state.compare_exchange_strong(called, BUSY)) continue;  // the task is over
            post.task.call(post.task.of, post.number);
            post.state.store(FREE, std::memory_order_release);
        }
    }

    // Whether a task has come; false at the end.
    bool expect(const Post &post) {
        const int64_t began = nanoseconds();
        for (int spins = 1; post.state.load(std::memory_order_relaxed) != CALLED; spins++, relax())
            if (spins % 64 == 0 && nanoseconds() - began > LOOKS) {
                std::unique_lock<std::mutex> lock(mutex);
                sleepers++;
                wake.wait(lock, [&] { return ended || post.state.load() == CALLED; });
                sleepers--;
                break;
            }
        return !ended;
    }

    static constexpr int64_t LOOKS = 1000000;  // nanoseconds

    std::vector<std::unique_ptr<Post>> posts;  // of each thread
    std::mutex mutex;
    std::condition_variable wake;
    std::atomic<int64_t> sleepers{0};
    std::atomic<bool> ended{false};
};

// The crew of the calling thread, which ends with it; null where there is no memory for one. Where this process began as a
// copy of another, the other's crew has no threads here, and is left alone.
inline const std::shared_ptr<Crew> &crew() {
    static thread_local struct Own {
        std::shared_ptr<Crew> crew;
        ~Own() {
            if (crew && crew->made_in == process()) crew->end();
        }
    } own;
    if (!own.crew || own.crew->made_in != process()) try {
            own.crew = std::make_shared<Crew>();
        } catch (const std::bad_alloc &) {
        }
    return own.crew;
}

// body(member) on so many threads, or fewer where there are not so many.
template <class Body>
void run(int64_t threads, const Body &body) {
    if (threads > MOST_MEMBERS) threads = MOST_MEMBERS;
    std::shared_ptr<Crew> own;
    if (threads > 1 && !openmp.here()) {
        own = crew();
        threads = own ? 1 + own->grow(threads - 1, own) : 1;
    }
    struct Region {
        Team team;
        const Body &body;
        static void enter(void *of, int64_t number) {
            Region &region = *(Region *)of;
            Member member(region.team, number);
            region.body(member);
        }
        static void enter_openmp(void *of) { enter(of, openmp.number()); }
    };
    Region region{Team(threads > 1 ? threads : 1), body};
    if (threads <= 1)
        Region::enter(&region, 0);
    else if (own)
        own->run(Task{&Region::enter, &region}, threads - 1);
    else
        openmp.parallel(&Region::enter_openmp, &region, unsigned(threads), 0);
}
