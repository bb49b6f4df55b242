// Learned lines: source lines whose values an evaluation stores although it was not asked for them.
//
// A value that a handle keeps and that an evaluation computes on its way is not stored at first: most such
// values are the named steps of one expression and die unread. When a later evaluation meets one again, the
// line that recorded it is learned, and from then on values of that line are stored when they are first
// computed. A line whose stored values die unread twice in a row is forgotten. docs/when.md has the rules for
// users.
//
// The table is shared by all threads, has a fixed size and takes a lock only to learn. A line is a source
// location: one call in the text, so two calls on one line are told apart.
#pragma once

#include "record/node.h"

#include <cstdint>

namespace kiln::ir {

/// Whether values of this line are stored. Takes no lock.
bool is_learned(SourceLocation line);
/// False while no line is learned: the usual case, one load.
bool any_learned();
/// From now on the values of this line are stored. Does nothing when the table is full.
void learn(SourceLocation line);
/// A value of this line that was stored because of it was read: it will not be forgotten soon.
void was_read(SourceLocation line);
/// The same for a leaf that an evaluation or its owner reads. Leaves of other threads may be read at once.
inline void note_read(Node* leaf) {
  if (__atomic_load_n(&leaf->attr64, __ATOMIC_RELAXED) != kUnread) [[likely]]
    return;
  __atomic_store_n(&leaf->attr64, 0, __ATOMIC_RELAXED);
  was_read(leaf->loc);
}
/// Says of a leaf that was stored because its line is learned that nobody has read it yet.
inline void note_unread(Node* leaf) { __atomic_store_n(&leaf->attr64, kUnread, __ATOMIC_RELAXED); }
/// A value of this line that was stored because of it died, and no evaluation had read it.
void died_unread(SourceLocation line);
/// Values of this line may no longer be needed: the next one that dies unread is the last that is stored.
void doubt(SourceLocation line);
/// An evaluation computes again what an earlier one has computed of this line. Returns how many evaluations
/// have.
std::uint32_t computed_again(SourceLocation line);

/// Forgets every line: for tests.
void forget_lines();

}  // namespace kiln::ir
