#include "record/learned_lines.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

namespace kiln::ir {
namespace {

constexpr std::size_t kPlaces = 4096;            // a power of two
constexpr std::size_t kMostLines = kPlaces / 2;  // so that every search meets an empty place soon
constexpr std::uint8_t kForgotten = 2;           // values in a row that died unread

/// A place is taken for good by its first line: a forgotten line is only no longer learned.
struct Line {
  std::atomic<std::uint64_t> key{0};
  std::atomic<bool> learned{false};
  std::atomic<std::uint8_t> unread{0};
  std::atomic<std::uint32_t> again{0};
};

constinit std::array<Line, kPlaces> lines{};
constinit std::atomic<std::size_t> learned_lines{0};
constinit std::size_t taken = 0;  // under `mutex`
constinit std::mutex mutex;       // a leaf: nothing else is locked while it is held

std::uint64_t key_of(SourceLocation line) {
  std::uint64_t key;
  static_assert(sizeof key == sizeof line);
  std::memcpy(&key, &line, sizeof key);
  return key;
}

std::size_t first_place(std::uint64_t key) { return (key * 0x9e3779b97f4a7c15u >> 32) % kPlaces; }

/// Null: never seen.
Line* find(std::uint64_t key) {
  for (std::size_t at = first_place(key);; at = (at + 1) % kPlaces) {
    const std::uint64_t there = lines[at].key.load(std::memory_order_acquire);
    if (there == key) return &lines[at];
    if (there == 0) return nullptr;
  }
}

/// Null: the table is full, or the node has no line.
Line* find_or_take(std::uint64_t key) {
  if (key == 0) return nullptr;
  if (Line* const found = find(key)) return found;
  const std::lock_guard lock(mutex);
  if (Line* const found = find(key)) return found;
  if (taken == kMostLines) return nullptr;
  ++taken;
  std::size_t at = first_place(key);
  while (lines[at].key.load(std::memory_order_relaxed) != 0) at = (at + 1) % kPlaces;
  lines[at].key.store(key, std::memory_order_release);
  return &lines[at];
}

}  // namespace

bool any_learned() { return learned_lines.load(std::memory_order_relaxed) > 0; }

bool is_learned(SourceLocation line) {
  const std::uint64_t key = key_of(line);
  const Line* const l = key == 0 ? nullptr : find(key);
  return l && l->learned.load(std::memory_order_relaxed);
}

void learn(SourceLocation line) {
  Line* const l = find_or_take(key_of(line));
  if (!l || l->learned.exchange(true, std::memory_order_relaxed)) return;
  l->unread.store(0, std::memory_order_relaxed);
  learned_lines.fetch_add(1, std::memory_order_relaxed);
}

void was_read(SourceLocation line) {
  if (Line* const l = find_or_take(key_of(line))) l->unread.store(0, std::memory_order_relaxed);
}

void died_unread(SourceLocation line) {
  Line* const l = find_or_take(key_of(line));
  if (!l || l->unread.fetch_add(1, std::memory_order_relaxed) + 1 < kForgotten) return;
  if (l->learned.exchange(false, std::memory_order_relaxed))
    learned_lines.fetch_sub(1, std::memory_order_relaxed);
}

void doubt(SourceLocation line) {
  if (Line* const l = find_or_take(key_of(line))) l->unread.store(kForgotten - 1, std::memory_order_relaxed);
}

std::uint32_t computed_again(SourceLocation line) {
  Line* const l = find_or_take(key_of(line));
  return l ? l->again.fetch_add(1, std::memory_order_relaxed) + 1 : 0;
}

void forget_lines() {
  for (Line& l : lines) {
    l.learned.store(false, std::memory_order_relaxed);
    l.unread.store(0, std::memory_order_relaxed);
    l.again.store(0, std::memory_order_relaxed);
  }
  learned_lines.store(0, std::memory_order_relaxed);
}

}  // namespace kiln::ir
