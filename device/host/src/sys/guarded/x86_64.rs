//! Guarded copies for x86-64. Its order of loads and stores is what the copies promise, without fences.

std::arch::global_asm!(
    ".pushsection .text",
    ".p2align 4",
    ".globl rockery_guard_begin; .hidden rockery_guard_begin; rockery_guard_begin:",
    // (to, from, length): ascending, the last byte by a store of its own after the others. From 2 KiB on
    // `rep movsb` is faster, which takes as long to begin as a hundred bytes take otherwise. What is left of
    // a block is copied by moves that overlap those before.
    ".globl rockery_guard_copy; .hidden rockery_guard_copy; rockery_guard_copy:",
    "sub rdx, 1",
    "jz 9f",
    "cmp rdx, 16",
    "jb 5f",
    "cmp rdx, 32",
    "jbe 4f",
    "cmp rdx, 64",
    "jbe 3f",
    "cmp rdx, 2048",
    "jae 8f",
    "mov rcx, rdx",
    "2:",
    "movdqu xmm0, [rsi]",
    "movdqu xmm1, [rsi + 16]",
    "movdqu xmm2, [rsi + 32]",
    "movdqu xmm3, [rsi + 48]",
    "movdqu [rdi], xmm0",
    "movdqu [rdi + 16], xmm1",
    "movdqu [rdi + 32], xmm2",
    "movdqu [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rcx, 64",
    "cmp rcx, 64",
    "ja 2b",
    "movdqu xmm0, [rsi + rcx - 64]",
    "movdqu xmm1, [rsi + rcx - 48]",
    "movdqu xmm2, [rsi + rcx - 32]",
    "movdqu xmm3, [rsi + rcx - 16]",
    "movdqu [rdi + rcx - 64], xmm0",
    "movdqu [rdi + rcx - 48], xmm1",
    "movdqu [rdi + rcx - 32], xmm2",
    "movdqu [rdi + rcx - 16], xmm3",
    "mov al, [rsi + rcx]",
    "mov [rdi + rcx], al",
    "xor eax, eax",
    "ret",
    "3:",
    "movdqu xmm0, [rsi]",
    "movdqu xmm1, [rsi + 16]",
    "movdqu xmm2, [rsi + rdx - 32]",
    "movdqu xmm3, [rsi + rdx - 16]",
    "movdqu [rdi], xmm0",
    "movdqu [rdi + 16], xmm1",
    "movdqu [rdi + rdx - 32], xmm2",
    "movdqu [rdi + rdx - 16], xmm3",
    "jmp 9f",
    "4:",
    "movdqu xmm0, [rsi]",
    "movdqu xmm1, [rsi + rdx - 16]",
    "movdqu [rdi], xmm0",
    "movdqu [rdi + rdx - 16], xmm1",
    "jmp 9f",
    "5:",
    "cmp rdx, 8",
    "jb 6f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "jmp 9f",
    "6:",
    "cmp rdx, 4",
    "jb 7f",
    "mov eax, [rsi]",
    "mov ecx, [rsi + rdx - 4]",
    "mov [rdi], eax",
    "mov [rdi + rdx - 4], ecx",
    "jmp 9f",
    "7:",
    // One to three bytes: the first, the middle and the last of them.
    "mov rcx, rdx",
    "shr rcx",
    "mov al, [rsi]",
    "mov r8b, [rsi + rcx]",
    "mov r9b, [rsi + rdx - 1]",
    "mov [rdi], al",
    "mov [rdi + rcx], r8b",
    "mov [rdi + rdx - 1], r9b",
    "jmp 9f",
    "8:",
    "mov rcx, rdx",
    "rep movsb",
    "xor edx, edx",
    "9:",
    "mov al, [rsi + rdx]",
    "mov [rdi + rdx], al",
    "xor eax, eax",
    "ret",
    // (to, from): eight bytes at once.
    ".globl rockery_guard_word; .hidden rockery_guard_word; rockery_guard_word:",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "xor eax, eax",
    "ret",
    // (cell, add, before)
    ".globl rockery_guard_add; .hidden rockery_guard_add; rockery_guard_add:",
    "lock xadd [rdi], rsi",
    "mov [rdx], rsi",
    "xor eax, eax",
    "ret",
    // (cell, compare, swap, before)
    ".globl rockery_guard_swap; .hidden rockery_guard_swap; rockery_guard_swap:",
    "mov rax, rsi",
    "lock cmpxchg [rdi], rdx",
    "mov [rcx], rax",
    "xor eax, eax",
    "ret",
    ".globl rockery_guard_end; .hidden rockery_guard_end; rockery_guard_end:",
    ".globl rockery_guard_failed; .hidden rockery_guard_failed; rockery_guard_failed:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

// SAFETY: the functions above, with these arguments.
unsafe extern "C" {
    fn rockery_guard_add(cell: *mut u8, add: u64, before: *mut u64) -> i32;
    fn rockery_guard_swap(cell: *mut u8, compare: u64, swap: u64, before: *mut u64) -> i32;
}

/// Adds to eight bytes.
///
/// # Safety
/// As [`super::Guard::fetch_add`].
pub(super) unsafe fn add(cell: *mut u8, add: u64, before: &mut u64) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { rockery_guard_add(cell, add, before) }
}

/// Swaps eight bytes if they are as expected.
///
/// # Safety
/// As [`super::Guard::compare_swap`].
pub(super) unsafe fn swap(cell: *mut u8, compare: u64, swap: u64, before: &mut u64) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { rockery_guard_swap(cell, compare, swap, before) }
}

/// The address of the instruction at which a signal has interrupted a thread.
pub(super) fn interrupted_at(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

/// Has the thread go on at an instruction.
pub(super) fn go_on_at(context: &mut libc::ucontext_t, instruction: u64) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = instruction as i64;
}
