//! The functions that a worker calls in WebAssembly. A request is written into memory that [`allocate`] gave;
//! the answer is where [`answer`] says, until [`free`].

// SAFETY: the page provides this function, which takes a number and touches no memory of ours.
#[link(wasm_import_module = "page")]
unsafe extern "C" {
    /// Tells the page the part of the run that is done, from 0 to 1.
    safe fn progress(done: f64);
}

/// Memory for a request of `length` bytes.
#[unsafe(no_mangle)]
extern "C" fn allocate(length: usize) -> *mut u8 {
    Box::leak(vec![0; length].into_boxed_slice()).as_mut_ptr()
}

/// Answers the request of `length` bytes at `request`, which [`allocate`] gave, and frees the request. The
/// result is the address of the answer in the upper 32 bits, and its length in the lower ones.
#[unsafe(no_mangle)]
extern "C" fn answer(request: *mut u8, length: usize) -> u64 {
    // SAFETY: the worker passes what `allocate` returned for this length, once.
    let request = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(request, length)) };
    let answer = crate::answer(&request, &mut |done| {
        progress(done);
        true
    });
    let answer = Box::leak(answer.into_boxed_slice());
    (answer.as_mut_ptr() as u64) << 32 | answer.len() as u64
}

/// Frees an answer.
#[unsafe(no_mangle)]
extern "C" fn free(answer: *mut u8, length: usize) {
    // SAFETY: the worker passes the address and length that `answer` returned, once.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(answer, length)) });
}
