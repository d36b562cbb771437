//! Programs that are built with AddressSanitizer or ThreadSanitizer: the options that they need beside
//! rockery's libraries.

/// Options by variable. A program started by a script or by another program needs them as well, so they are
/// set for every program; others do not read them.
///
/// - AddressSanitizer ends a program in which a preloaded library comes before its runtime. It works in this
///   order too: no library of rockery replaces a function that the runtime replaces, except those that pass
///   calls on to it.
/// - ThreadSanitizer sees the memory accesses of a library only in functions such as memcpy(3), and nothing
///   of what orders them, so it would report races for each of them. Functions of the program are still
///   checked.
pub(crate) const OPTIONS: [(&str, &str); 2] = [
    ("ASAN_OPTIONS", "verify_asan_link_order=0"),
    ("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"),
];
