//! Guarded copies for 64-bit ARM, whose loads and stores are in no order by themselves. A peer that sees the
//! last byte of a copy sees the others, and what is read or written after the copy comes after it, as on
//! x86-64: so there is a barrier before the last byte, and a word is loaded with acquire and stored with
//! release.

std::arch::global_asm!(
    ".pushsection .text",
    ".p2align 4",
    ".globl rockery_guard_begin; .hidden rockery_guard_begin; rockery_guard_begin:",
    // (to, from, length): ascending, the last byte by a store of its own after the others. What is left of a
    // block is copied by moves that overlap those before.
    ".globl rockery_guard_copy; .hidden rockery_guard_copy; rockery_guard_copy:",
    "sub x2, x2, #1",
    "cbz x2, 9f",
    "cmp x2, #16",
    "b.lo 5f",
    "cmp x2, #32",
    "b.ls 4f",
    "cmp x2, #64",
    "b.ls 3f",
    "2:",
    "ldp q0, q1, [x1]",
    "ldp q2, q3, [x1, #32]",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x0, #32]",
    "add x1, x1, #64",
    "add x0, x0, #64",
    "sub x2, x2, #64",
    "cmp x2, #64",
    "b.hi 2b",
    "add x4, x1, x2",
    "add x5, x0, x2",
    "ldp q0, q1, [x4, #-64]",
    "ldp q2, q3, [x4, #-32]",
    "stp q0, q1, [x5, #-64]",
    "stp q2, q3, [x5, #-32]",
    "b 9f",
    "3:",
    "add x4, x1, x2",
    "add x5, x0, x2",
    "ldp q0, q1, [x1]",
    "ldp q2, q3, [x4, #-32]",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x5, #-32]",
    "b 9f",
    "4:",
    "add x4, x1, x2",
    "add x5, x0, x2",
    "ldr q0, [x1]",
    "ldur q1, [x4, #-16]",
    "str q0, [x0]",
    "stur q1, [x5, #-16]",
    "b 9f",
    "5:",
    "cmp x2, #8",
    "b.lo 6f",
    "add x4, x1, x2",
    "add x5, x0, x2",
    "ldr x6, [x1]",
    "ldur x7, [x4, #-8]",
    "str x6, [x0]",
    "stur x7, [x5, #-8]",
    "b 9f",
    "6:",
    "cmp x2, #4",
    "b.lo 7f",
    "add x4, x1, x2",
    "add x5, x0, x2",
    "ldr w6, [x1]",
    "ldur w7, [x4, #-4]",
    "str w6, [x0]",
    "stur w7, [x5, #-4]",
    "b 9f",
    "7:",
    // One to three bytes: the first, the middle and the last of them.
    "lsr x3, x2, #1",
    "sub x4, x2, #1",
    "ldrb w6, [x1]",
    "ldrb w7, [x1, x3]",
    "ldrb w8, [x1, x4]",
    "strb w6, [x0]",
    "strb w7, [x0, x3]",
    "strb w8, [x0, x4]",
    "9:",
    "ldrb w6, [x1, x2]",
    "dmb ish",
    "strb w6, [x0, x2]",
    "mov w0, #0",
    "ret",
    // (to, from): eight bytes at once.
    ".globl rockery_guard_word; .hidden rockery_guard_word; rockery_guard_word:",
    // Where the word comes from need not be a multiple of eight, which a load with acquire wants.
    "ldr x3, [x1]",
    "dmb ishld",
    "stlr x3, [x0]",
    "mov w0, #0",
    "ret",
    // (cell, add, before): as a fence, as the instruction of x86-64 is one. Processors of ARMv8.0 have no
    // single instruction for it.
    ".globl rockery_guard_add; .hidden rockery_guard_add; rockery_guard_add:",
    "2:",
    "ldxr x3, [x0]",
    "add x4, x3, x1",
    "stlxr w5, x4, [x0]",
    "cbnz w5, 2b",
    "dmb ish",
    "str x3, [x2]",
    "mov w0, #0",
    "ret",
    // (cell, compare, swap, before): as a fence too.
    ".globl rockery_guard_swap; .hidden rockery_guard_swap; rockery_guard_swap:",
    "2:",
    "ldxr x4, [x0]",
    "cmp x4, x1",
    "b.ne 3f",
    "stlxr w5, x2, [x0]",
    "cbnz w5, 2b",
    "3:",
    "dmb ish",
    "str x4, [x3]",
    "mov w0, #0",
    "ret",
    // The same two by one instruction each (LSE), which no other processor can make fail again and again.
    ".arch_extension lse",
    ".globl rockery_guard_add_at_once; .hidden rockery_guard_add_at_once; rockery_guard_add_at_once:",
    "ldaddal x1, x3, [x0]",
    "dmb ish",
    "str x3, [x2]",
    "mov w0, #0",
    "ret",
    // A comparison that fails stores nothing, and releases nothing: hence the fence.
    ".globl rockery_guard_swap_at_once; .hidden rockery_guard_swap_at_once",
    "rockery_guard_swap_at_once:",
    "mov x4, x1",
    "casal x4, x2, [x0]",
    "dmb ish",
    "str x4, [x3]",
    "mov w0, #0",
    "ret",
    ".arch_extension nolse",
    ".globl rockery_guard_end; .hidden rockery_guard_end; rockery_guard_end:",
    ".globl rockery_guard_failed; .hidden rockery_guard_failed; rockery_guard_failed:",
    "mov w0, #1",
    "ret",
    ".popsection",
);

// SAFETY: the functions above, with these arguments.
unsafe extern "C" {
    fn rockery_guard_add(cell: *mut u8, add: u64, before: *mut u64) -> i32;
    fn rockery_guard_add_at_once(cell: *mut u8, add: u64, before: *mut u64) -> i32;
    fn rockery_guard_swap(cell: *mut u8, compare: u64, swap: u64, before: *mut u64) -> i32;
    fn rockery_guard_swap_at_once(cell: *mut u8, compare: u64, swap: u64, before: *mut u64) -> i32;
}

/// Adds to eight bytes, by one instruction where the processor has it.
///
/// # Safety
/// As [`super::Guard::fetch_add`].
pub(super) unsafe fn add(cell: *mut u8, add: u64, before: &mut u64) -> i32 {
    // SAFETY: by this function's contract; an instruction that the processor has.
    unsafe {
        if std::arch::is_aarch64_feature_detected!("lse") {
            rockery_guard_add_at_once(cell, add, before)
        } else {
            rockery_guard_add(cell, add, before)
        }
    }
}

/// Swaps eight bytes if they are as expected, by one instruction where the processor has it.
///
/// # Safety
/// As [`super::Guard::compare_swap`].
pub(super) unsafe fn swap(cell: *mut u8, compare: u64, swap: u64, before: &mut u64) -> i32 {
    // SAFETY: by this function's contract; an instruction that the processor has.
    unsafe {
        if std::arch::is_aarch64_feature_detected!("lse") {
            rockery_guard_swap_at_once(cell, compare, swap, before)
        } else {
            rockery_guard_swap(cell, compare, swap, before)
        }
    }
}

/// The address of the instruction at which a signal has interrupted a thread.
pub(super) fn interrupted_at(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.pc
}

/// Has the thread go on at an instruction.
pub(super) fn go_on_at(context: &mut libc::ucontext_t, instruction: u64) {
    context.uc_mcontext.pc = instruction;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Additions and swaps by one kind of instructions.
    struct Kind {
        add: unsafe fn(*mut u8, u64, &mut u64) -> i32,
        swap: unsafe fn(*mut u8, u64, u64, &mut u64) -> i32,
    }

    impl Kind {
        /// Adds one, and one more by a swap if no other thread has changed the cell meanwhile; returns what
        /// was added.
        fn add_and_swap(&self, cell: &AtomicU64) -> u64 {
            let (mut before, mut found, at) = (0, 0, cell.as_ptr().cast());
            // SAFETY: a cell of this test, at a multiple of eight.
            assert_eq!(unsafe { (self.add)(at, 1, &mut before) }, 0);
            let expected = before + 1;
            // SAFETY: the cell is still this test's.
            let swapped = unsafe { (self.swap)(at, expected, expected + 1, &mut found) };
            assert_eq!(swapped, 0);
            1 + u64::from(found == expected)
        }
    }

    unsafe fn add_by_pair(cell: *mut u8, add: u64, before: &mut u64) -> i32 {
        // SAFETY: this function's arguments are those of the other one.
        unsafe { rockery_guard_add(cell, add, before) }
    }

    unsafe fn swap_by_pair(cell: *mut u8, compare: u64, swap: u64, before: &mut u64) -> i32 {
        // SAFETY: this function's arguments are those of the other one.
        unsafe { rockery_guard_swap(cell, compare, swap, before) }
    }

    /// One thread has single instructions where the processor has them, the other has pairs of exclusive
    /// accesses.
    #[test]
    fn both_kinds_of_instructions_are_atomic_towards_each_other() {
        let cell = AtomicU64::new(0);
        let all = |kind: &Kind| (0..10_000).map(|_| kind.add_and_swap(&cell)).sum::<u64>();
        let pairs = Kind {
            add: add_by_pair,
            swap: swap_by_pair,
        };
        let added = std::thread::scope(|threads| {
            let other = threads.spawn(|| all(&pairs));
            all(&Kind { add, swap }) + other.join().unwrap()
        });
        assert_eq!(cell.into_inner(), added);
    }
}
