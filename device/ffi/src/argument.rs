//! Arguments of functions that C calls. A raw pointer is converted once, at the boundary, to a type with the
//! guarantees of the manual page: the function's body then reads and writes through safe methods.

use crate::{Errno, Subject};
use core::ffi::CStr;
use core::ffi::c_char;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// A parameter of a function that C calls.
pub trait Argument {
    /// The type of the parameter in C's prototype.
    type Raw;

    /// Converts the C value.
    ///
    /// # Safety
    /// A pointer satisfies the guarantees of the type while the function runs.
    unsafe fn from_raw(raw: Self::Raw) -> Self;

    /// Says what the argument is, for rules of faults and for traces.
    fn describe(&self, _subject: &mut Subject) {}
}

/// Numbers are taken unchanged.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Argument for $number {
            type Raw = Self;

            #[inline(always)]
            unsafe fn from_raw(raw: Self) -> Self {
                raw
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 i16 i32 i64 isize }

/// In calls of verbs, the length of memory.
impl Argument for usize {
    type Raw = Self;

    #[inline(always)]
    unsafe fn from_raw(raw: Self) -> Self {
        raw
    }

    fn describe(&self, subject: &mut Subject) {
        subject.size = Some(*self as u64);
    }
}

/// A pointer that is stored or compared; code that dereferences it needs an `unsafe` block of its own.
impl<T> Argument for *mut T {
    type Raw = Self;

    #[inline(always)]
    unsafe fn from_raw(raw: Self) -> Self {
        raw
    }

    fn describe(&self, subject: &mut Subject) {
        subject.object.get_or_insert(self.addr() as u64);
    }
}

/// A pointer that is stored or compared; code that dereferences it needs an `unsafe` block of its own.
impl<T> Argument for *const T {
    type Raw = Self;

    #[inline(always)]
    unsafe fn from_raw(raw: Self) -> Self {
        raw
    }
}

/// A raw pointer, which C declares with or without `const`.
pub trait Pointer: Copy {
    /// The type that it points to.
    type Target;

    /// The pointer with `const`.
    fn to_const(self) -> *const Self::Target;
}

impl<T> Pointer for *const T {
    type Target = T;

    #[inline(always)]
    fn to_const(self) -> Self {
        self
    }
}

impl<T> Pointer for *mut T {
    type Target = T;

    #[inline(always)]
    fn to_const(self) -> *const T {
        self.cast_const()
    }
}

/// A value that the function reads: the pointer `P` is NULL or valid.
#[derive(Clone, Copy, Debug)]
pub struct In<'a, P>(P, PhantomData<&'a ()>);

impl<P: Pointer> Argument for In<'_, P> {
    type Raw = P;

    #[inline(always)]
    unsafe fn from_raw(raw: P) -> Self {
        Self(raw, PhantomData)
    }
}

impl<'a, P: Pointer> In<'a, P> {
    /// Reads the value; `None` for NULL.
    #[inline(always)]
    pub fn optional(self) -> Option<&'a P::Target> {
        // SAFETY: by the contract of `from_raw`, the pointer is NULL or valid while the function runs.
        unsafe { self.0.to_const().as_ref() }
    }

    /// Reads the value.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    #[inline(always)]
    pub fn get(self) -> Result<&'a P::Target, Errno> {
        self.optional().ok_or(Errno::INVALID)
    }
}

/// A value that the function reads and writes: NULL or valid. No other code uses it while the function runs.
#[derive(Debug)]
pub struct InOut<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Argument for InOut<'_, T> {
    type Raw = *mut T;

    #[inline(always)]
    unsafe fn from_raw(raw: *mut T) -> Self {
        Self(raw, PhantomData)
    }
}

impl<'a, T> InOut<'a, T> {
    /// Borrows the value; `None` for NULL.
    #[inline(always)]
    pub fn optional(self) -> Option<&'a mut T> {
        // SAFETY: by the contract of `from_raw`, the pointer is NULL or valid, and no other code uses the
        // value while the function runs.
        unsafe { self.0.as_mut() }
    }

    /// Borrows the value for reading and writing.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    #[inline(always)]
    pub fn get(self) -> Result<&'a mut T, Errno> {
        self.optional().ok_or(Errno::INVALID)
    }
}

/// A place that the function writes to: NULL, or room for a value, which need not be there before.
#[derive(Debug)]
pub struct Out<'a, T>(Option<NonNull<T>>, PhantomData<&'a mut T>);

impl<T> Argument for Out<'_, T> {
    type Raw = *mut T;

    #[inline(always)]
    unsafe fn from_raw(raw: *mut T) -> Self {
        Self(NonNull::new(raw), PhantomData)
    }
}

impl<T> Out<'_, T> {
    /// Whether the pointer is NULL.
    #[inline(always)]
    pub const fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// Checks that the pointer is not NULL before an operation whose result is written there.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    pub fn required(self) -> Result<Self, Errno> {
        if self.is_null() {
            Err(Errno::INVALID)
        } else {
            Ok(self)
        }
    }

    /// Writes the value.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    #[inline(always)]
    pub fn write(self, value: T) -> Result<(), Errno> {
        let place = self.0.ok_or(Errno::INVALID)?;
        // SAFETY: by the contract of `from_raw`, there is room for a value.
        unsafe { place.write(value) };
        Ok(())
    }
}

/// Text: NULL, or characters up to a zero.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(*const c_char, PhantomData<&'a ()>);

impl Argument for Text<'_> {
    type Raw = *const c_char;

    #[inline(always)]
    unsafe fn from_raw(raw: *const c_char) -> Self {
        Self(raw, PhantomData)
    }
}

impl<'a> Text<'a> {
    /// Borrows the text; `None` for NULL.
    pub fn optional(self) -> Option<&'a CStr> {
        // SAFETY: by the contract of `from_raw`, what is not NULL ends with a zero.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    /// Borrows the text as a C string.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    pub fn get(self) -> Result<&'a CStr, Errno> {
        self.optional().ok_or(Errno::INVALID)
    }
}

/// A struct of a library whose first field is the struct of the C header.
///
/// # Safety
/// The struct is `repr(C)` and begins with a `C`. C gets pointers to it from `Box::into_raw` alone.
pub unsafe trait BeginsWith<C> {
    /// Says what the object is, for rules of faults.
    fn describe(&self, _subject: &mut Subject) {}
}

/// An object of a library: NULL, or a live one.
#[derive(Debug)]
pub struct Object<'a, T, C>(*mut C, PhantomData<&'a T>);

impl<T, C> Clone for Object<'_, T, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, C> Copy for Object<'_, T, C> {}

impl<T: BeginsWith<C>, C> Argument for Object<'_, T, C> {
    type Raw = *mut C;

    #[inline(always)]
    unsafe fn from_raw(raw: *mut C) -> Self {
        Self(raw, PhantomData)
    }

    fn describe(&self, subject: &mut Subject) {
        self.optional()
            .into_iter()
            .for_each(|object| object.describe(subject));
    }
}

impl<'a, T: BeginsWith<C>, C> Object<'a, T, C> {
    /// Borrows the object; `None` for NULL.
    #[inline(always)]
    pub fn optional(self) -> Option<&'a T> {
        // SAFETY: by the contract of `from_raw`, the pointer is NULL or a live object, and C's struct is its
        // beginning.
        unsafe { self.0.cast::<T>().as_ref() }
    }

    /// Borrows the object behind the pointer.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    #[inline(always)]
    pub fn get(self) -> Result<&'a T, Errno> {
        self.optional().ok_or(Errno::INVALID)
    }

    /// The pointer that C has.
    #[inline(always)]
    pub const fn raw(self) -> *mut C {
        self.0
    }
}

/// A live object of a library. NULL is not checked, so that functions that C calls for each request cost no
/// comparison.
#[derive(Debug)]
pub struct Live<'a, T, C>(*mut C, PhantomData<&'a T>);

impl<T, C> Clone for Live<'_, T, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, C> Copy for Live<'_, T, C> {}

impl<T: BeginsWith<C>, C> Argument for Live<'_, T, C> {
    type Raw = *mut C;

    #[inline(always)]
    unsafe fn from_raw(raw: *mut C) -> Self {
        Self(raw, PhantomData)
    }

    fn describe(&self, subject: &mut Subject) {
        (**self).describe(subject);
    }
}

impl<T, C> Live<'_, T, C> {
    /// The pointer that C has.
    #[inline(always)]
    pub const fn raw(self) -> *mut C {
        self.0
    }
}

impl<T: BeginsWith<C>, C> Deref for Live<'_, T, C> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: by the contract of `from_raw`, the pointer is a live object, and C's struct is its
        // beginning.
        unsafe { &*self.0.cast::<T>() }
    }
}

/// An object that the program gives up: NULL, or a live object that is not used after the function has freed
/// it. If the function fails before that, the object stays.
#[derive(Debug)]
pub struct GivenUp<T, C>(*mut C, PhantomData<T>);

impl<T: BeginsWith<C>, C> Argument for GivenUp<T, C> {
    type Raw = *mut C;

    #[inline(always)]
    unsafe fn from_raw(raw: *mut C) -> Self {
        Self(raw, PhantomData)
    }

    fn describe(&self, subject: &mut Subject) {
        self.get()
            .into_iter()
            .for_each(|object| object.describe(subject));
    }
}

impl<T: BeginsWith<C>, C> GivenUp<T, C> {
    /// Borrows the object behind the pointer.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    pub fn get(&self) -> Result<&T, Errno> {
        // SAFETY: by the contract of `from_raw`, the pointer is NULL or a live object, and C's struct is its
        // beginning; only `free`, which consumes this, ends its life.
        unsafe { self.0.cast::<T>().as_ref() }.ok_or(Errno::INVALID)
    }

    /// Takes the object back. `None` for NULL.
    pub fn take(self) -> Option<Box<T>> {
        // SAFETY: by the contract of `BeginsWith`, the object is from `Box::into_raw`; by that of `from_raw`,
        // nothing uses it any more.
        (!self.0.is_null()).then(|| unsafe { Box::from_raw(self.0.cast::<T>()) })
    }

    /// Frees the object; NULL is ignored.
    pub fn free(self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Thing {
        abi: u32,
        more: u64,
    }

    // SAFETY: the first field is C's, and the tests box it.
    unsafe impl BeginsWith<u32> for Thing {}

    #[test]
    fn null_is_an_error_and_no_value() {
        let none: *mut u32 = core::ptr::null_mut();
        // SAFETY: NULL is allowed for each of them.
        unsafe {
            assert_eq!(
                <In<'_, *mut u32>>::from_raw(none).get(),
                Err(Errno::INVALID)
            );
            assert_eq!(<In<'_, *const u32>>::from_raw(none).optional(), None);
            assert_eq!(InOut::from_raw(none).get(), Err(Errno::INVALID));
            assert_eq!(Out::from_raw(none).write(1), Err(Errno::INVALID));
            assert_eq!(Text::from_raw(core::ptr::null()).get(), Err(Errno::INVALID));
            assert!(Object::<Thing, u32>::from_raw(none).optional().is_none());
            assert!(GivenUp::<Thing, u32>::from_raw(none).take().is_none());
        }
    }

    #[test]
    fn objects_are_found_behind_what_c_sees() {
        let raw = Box::into_raw(Box::new(Thing { abi: 1, more: 2 })).cast::<u32>();
        // SAFETY: a live object, which is given up once.
        unsafe {
            assert_eq!(
                Object::<Thing, u32>::from_raw(raw)
                    .get()
                    .map(|thing| thing.more),
                Ok(2)
            );
            assert_eq!(Live::<Thing, u32>::from_raw(raw).abi, 1);
            let given_up = GivenUp::<Thing, u32>::from_raw(raw);
            assert_eq!(given_up.get().map(|thing| thing.more), Ok(2));
            assert_eq!(given_up.take().map(|thing| thing.more), Some(2));
        }
    }
}
