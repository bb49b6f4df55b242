// Streams and events. Work of one thread goes to that thread's current stream of a device; all threads share
// the device's default one, which does not wait for the legacy null stream, unless they set their own.
//
// A failure of a kernel shows at the next call that looks: synchronize, done, or any later one. It is a
// DeviceError, then and in every later call, for the device's context is lost.
#pragma once

#include <cstdint>
#include <utility>

struct CUstream_st;
struct CUevent_st;

namespace kiln::cuda {

/// Immortal: what Kiln knows of one stream. Compare and copy Streams freely.
struct StreamState;
using Stream = StreamState*;

int device_of(Stream stream);
CUstream_st* handle_of(Stream stream);

/// The device's own stream, made at first use, alive until the process ends.
Stream default_stream(int device);
/// A stream of the user's: the same Stream each time for the same one. It must stay alive until `retire`.
/// Null is the legacy default stream. DeviceError.
Stream wrap_stream(int device, CUstream_st* handle);
/// Another stream of Kiln's own, alive until the process ends.
Stream new_stream(int device);
/// To be called before the user destroys a wrapped stream: waits for it; its cached memory becomes the
/// default stream's, and what it used last counts as used there.
void retire(Stream stream);

/// Where this thread's work for the device goes.
Stream current_stream(int device);
/// Null: back to the default. Returns the one that was set before, or null.
Stream set_current_stream(int device, Stream stream);

/// Waits for everything enqueued; DeviceError if any of it failed.
void synchronize(Stream stream);
void synchronize_device(int device);
/// True when nothing is under way.
bool idle(Stream stream);

/// A point in a stream. Handles are pooled: recording one costs no driver allocation after the first few.
class Event {
 public:
  Event() = default;  ///< no point: is done, waiting for it does nothing
  Event(Event&& o) noexcept
      : device_(o.device_), timed_(o.timed_), handle_(std::exchange(o.handle_, nullptr)) {}
  Event& operator=(Event&& o) noexcept;
  ~Event();

  explicit operator bool() const { return handle_; }
  bool done() const;
  void synchronize() const;
  /// Work enqueued to `stream` from now on (of any device) waits for the point.
  void wait_on(Stream stream) const;

 private:
  friend Event record(Stream, bool);
  friend double elapsed_ms(const Event&, const Event&);
  int device_ = 0;
  bool timed_ = false;
  CUevent_st* handle_ = nullptr;
};

/// After all that is enqueued now. `timed` ones can be given to elapsed_ms.
Event record(Stream stream, bool timed = false);
/// Time between two timed events of one device, both done.
double elapsed_ms(const Event& from, const Event& to);
/// Work enqueued to `later` from now on waits for all that is enqueued in `earlier` now. Nothing when they
/// are the same.
void order(Stream earlier, Stream later);

}  // namespace kiln::cuda
