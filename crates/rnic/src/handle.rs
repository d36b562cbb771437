//! Names of the device's objects. Queue pairs are named by their number, [`wire::Qpn`].

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// The number behind the handle.
            pub const fn value(self) -> u32 {
                self.0
            }

            /// The handle of a number that [`Self::value`] gave.
            pub const fn from_value(value: u32) -> Self {
                Self(value)
            }
        }
    )*};
}

handles! {
    /// Handle of a protection domain.
    Pd;
    /// Handle of a completion queue.
    Cq;
    /// Shared receive queue. XRC knows it by another number ([`crate::Srqs::number`]).
    Srq;
    /// Handle of an XRC domain.
    Xrcd;
    /// Local key: names a memory region to its owner, and is the handle by which it is deregistered.
    Lkey;
    /// Handle of a memory window.
    Window;
}
