// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/stream/host_wait.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/per_thread.h"

namespace fmha::emu {
namespace {

constexpr int kInterrupting[] = {SIGINT, SIGTERM};
constexpr int kOfInstructions[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};

class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~EventFd() {
    if (fd_ >= 0) close(fd_);
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

HostWait::HostWait() : fd_(per_thread<EventFd>().fd()) {
  sigset_t interrupting;
  sigemptyset(&interrupting);
  for (const int s : kInterrupting) sigaddset(&interrupting, s);
  pthread_sigmask(SIG_BLOCK, &interrupting, &before_);
  sigfillset(&asleep_);
  for (const int s : kOfInstructions) sigdelset(&asleep_, s);
  for (const int s : kInterrupting) {
    if (!sigismember(&before_, s)) sigdelset(&asleep_, s);
  }
}

HostWait::~HostWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void HostWait::sleep() {
  const timespec moment{0, std::chrono::nanoseconds(kMoment).count()};
  pollfd wakes{fd_, POLLIN, 0};
  const int n = ppoll(&wakes, fd_ < 0 ? 0 : 1, &moment, &asleep_);
  if (n < 0 && errno == EINTR && !is_signalled_) {
    is_signalled_ = true;
    signalled_ = std::chrono::steady_clock::now();
  }
  eventfd_t count = 0;
  if (n > 0) (void)eventfd_read(fd_, &count);
}

void HostWait::wake() const {
  if (fd_ >= 0) (void)eventfd_write(fd_, 1);
}

bool HostWait::wants_to_cancel() const {
  return is_signalled_ && std::chrono::steady_clock::now() - signalled_ >= kCancelAfter;
}

}  // namespace fmha::emu
