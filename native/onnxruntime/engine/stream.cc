// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/stream.h"

#include <memory>

#include "engine/hip.h"

namespace fmha::onnxruntime {
namespace {

constexpr unsigned kNonBlocking = 1;    // hipStreamNonBlocking
constexpr unsigned kDisableTiming = 2;  // hipEventDisableTiming

struct Stream : OrtSyncStreamImpl {
  explicit Stream(const Place& of);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  OrtStatus* synchronize() noexcept;

  const Place& place;
  HipStream handle = nullptr;
};

struct Notification : OrtSyncNotificationImpl {
  explicit Notification(Stream& of);
  ~Notification() { (void)hip().event_destroy(event); }
  Notification(const Notification&) = delete;
  Notification& operator=(const Notification&) = delete;

  Stream& stream;
  HipEvent event = nullptr;
};

Stream& self(OrtSyncStreamImpl* stream) { return *static_cast<Stream*>(stream); }
Notification& self(OrtSyncNotificationImpl* notification) {
  return *static_cast<Notification*>(notification);
}

Notification::Notification(Stream& of) : OrtSyncNotificationImpl{}, stream(of) {
  const CurrentDevice current(of.place.device());
  check_hip(hip().event_create(&event, kDisableTiming), "hipEventCreateWithFlags");
  ort_version_supported = kApiVersion;
  Release = [](OrtSyncNotificationImpl* notification) noexcept { delete &self(notification); };
  Activate = [](OrtSyncNotificationImpl* notification) noexcept {
    return guarded([&] {
      Notification& that = self(notification);
      const CurrentDevice device(that.stream.place.device());
      check_hip(hip().event_record(that.event, that.stream.handle), "hipEventRecord");
    });
  };
  WaitOnDevice = [](OrtSyncNotificationImpl* notification, OrtSyncStream* consumer) noexcept {
    return guarded([&] {
      check_hip(hip().stream_wait_event(api().SyncStream_GetHandle(consumer), self(notification).event, 0),
                "hipStreamWaitEvent");
    });
  };
  WaitOnHost = [](OrtSyncNotificationImpl* notification) noexcept {
    return guarded(
        [&] { check_hip(hip().event_synchronize(self(notification).event), "hipEventSynchronize"); });
  };
}

OrtStatus* Stream::synchronize() noexcept {
  return guarded([&] { check_hip(hip().stream_synchronize(handle), "hipStreamSynchronize"); });
}

Stream::~Stream() {
  (void)hip().stream_synchronize(handle);
  place.pool().retire(handle);
  (void)hip().stream_destroy(handle);
}

Stream::Stream(const Place& of) : OrtSyncStreamImpl{}, place(of) {
  const CurrentDevice current(of.device());
  check_hip(hip().stream_create(&handle, kNonBlocking), "hipStreamCreateWithFlags");
  ort_version_supported = kApiVersion;
  Release = [](OrtSyncStreamImpl* stream) noexcept { delete &self(stream); };
  GetHandle = [](OrtSyncStreamImpl* stream) noexcept { return self(stream).handle; };
  CreateNotification = [](OrtSyncStreamImpl* stream, OrtSyncNotificationImpl** notification) noexcept {
    return guarded([&] { *notification = std::make_unique<Notification>(self(stream)).release(); });
  };
  Flush = [](OrtSyncStreamImpl* stream) noexcept { return self(stream).synchronize(); };
  OnSessionRunEnd = [](OrtSyncStreamImpl*) noexcept -> OrtStatus* { return nullptr; };
}

}  // namespace

OrtSyncStreamImpl* make_stream(const Place& place) { return new Stream(place); }

}  // namespace fmha::onnxruntime
