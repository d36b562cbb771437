//! What follows from the list of the algorithms: the choice among them, and a queue pair's own.

/// Makes [`super::CongestionConfig`] and [`super::Control`] of the list of algorithms with parameters. An
/// algorithm is the name of its variant, which is that of its type too, and its parameters.
macro_rules! controls {
    ($($(#[$meta:meta])* $Name:ident($Config:ty);)*) => {
        /// Which congestion control a queue pair runs.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum CongestionConfig {
            /// No algorithm: the window alone limits.
            Off,
            /// The window shrinks on loss and grows again: for networks without PFC, such as a socket buffer.
            Adaptive,
            $($(#[$meta])* $Name($Config),)*
        }

        impl CongestionConfig {
            /// The name of the algorithm.
            pub const fn name(&self) -> &'static str {
                match self {
                    Self::Off => "off",
                    Self::Adaptive => "window",
                    $(Self::$Name(_) => <$Config>::NAME,)*
                }
            }

            /// What slows the sender down.
            pub const fn signal(&self) -> Signal {
                match self {
                    Self::Off | Self::Adaptive => Signal::Loss,
                    $(Self::$Name(_) => <$Config>::SIGNAL,)*
                }
            }

            /// How long a sender takes from one reduction of its rate to the state in which the rate grows at
            /// its slowest.
            pub fn recovery(&self) -> Nanos {
                match self {
                    Self::Off | Self::Adaptive => Nanos(0),
                    $(Self::$Name(config) => config.recovery(),)*
                }
            }

            /// The least time between two notifications that a receiver sends.
            pub(crate) fn notification_interval(&self) -> Nanos {
                match self {
                    Self::Off | Self::Adaptive => NOTIFICATION_INTERVAL,
                    $(Self::$Name(config) => config.notification_interval(),)*
                }
            }
        }

        /// The algorithm of a queue pair.
        #[derive(Debug)]
        pub(crate) enum Control {
            /// No algorithm: the window of the configuration alone.
            Off {
                window_bytes: u32,
            },
            Adaptive(Adaptive),
            $($Name(Box<$Name>),)*
        }

        impl Control {
            pub(crate) fn new(config: &CongestionConfig, window_bytes: u32) -> Self {
                match config {
                    CongestionConfig::Off => Self::Off { window_bytes },
                    CongestionConfig::Adaptive => Self::Adaptive(Adaptive::new(window_bytes)),
                    $(CongestionConfig::$Name(config) => {
                        Self::$Name(Box::new(config.control(window_bytes)))
                    })*
                }
            }

            /// Number of packets that may be unacknowledged, at least one, so that progress is always
            /// possible.
            #[inline]
            pub(crate) fn window_packets(&self, mtu: u32) -> u32 {
                let packets = match self {
                    Self::Off { window_bytes } => packets(*window_bytes, mtu),
                    Self::Adaptive(algorithm) => algorithm.window_packets(mtu),
                    $(Self::$Name(algorithm) => algorithm.window_packets(mtu),)*
                };
                packets.max(1)
            }

            /// Whether packets may have to wait for the pacing time.
            #[inline]
            pub(crate) fn is_pacing(&self) -> bool {
                match self {
                    Self::Off { .. } | Self::Adaptive(_) => false,
                    $(Self::$Name(_) => <$Name as Algorithm>::PACES,)*
                }
            }

            /// When the next packet may be sent, where `bytes` are sent now.
            #[inline]
            pub(crate) fn paced(&mut self, bytes: u32, now: Instant) -> Instant {
                match self {
                    Self::Off { .. } => now,
                    Self::Adaptive(algorithm) => algorithm.paced(bytes, now),
                    $(Self::$Name(algorithm) => algorithm.paced(bytes, now),)*
                }
            }

            /// The next deadline for `handle_timeout`; [`Instant::NEVER`] where there is none.
            #[inline]
            pub(crate) fn deadline(&self) -> Instant {
                match self {
                    Self::Off { .. } => Instant::NEVER,
                    Self::Adaptive(algorithm) => algorithm.deadline(),
                    $(Self::$Name(algorithm) => algorithm.deadline(),)*
                }
            }

            /// Current rate in bits per second, where the algorithm has one.
            pub(crate) fn rate_bps(&self) -> Option<u64> {
                match self {
                    Self::Off { .. } => None,
                    Self::Adaptive(algorithm) => algorithm.rate_bps(),
                    $(Self::$Name(algorithm) => algorithm.rate_bps(),)*
                }
            }

            /// The lines of the algorithm's state.
            #[cfg(feature = "simulation")]
            #[inline]
            pub(crate) fn lines(&self, load: &impl Fn(*const u8)) {
                match self {
                    Self::Off { .. } => {}
                    Self::Adaptive(algorithm) => algorithm.lines(load),
                    $(Self::$Name(algorithm) => algorithm.lines(load),)*
                }
            }

            registry::events! {
                [$($Name)*]
                sent(bytes: u32, now: Instant);
                travelled(hop_limit: u8);
                told(hops: &[Hop]);
                echoed();
                acknowledged(bytes: u32, now: Instant);
                lost(now: Instant);
                timed_out(now: Instant);
                notified(now: Instant);
                handle_timeout(now: Instant);
            }
        }
    };
}

/// Makes the methods that tell an algorithm of an event, each like the method of the algorithm.
macro_rules! events {
    ($names:tt $($event:ident($($argument:ident: $type:ty),*);)*) => {
        $(registry::event! { $names $event($($argument: $type),*) ($($argument),*) })*
    };
}

macro_rules! event {
    ([$($Name:ident)*] $event:ident($($parameter:ident: $type:ty),*) $arguments:tt) => {
        #[inline]
        pub(crate) fn $event(&mut self, $($parameter: $type),*) {
            match self {
                Self::Off { .. } => {}
                Self::Adaptive(algorithm) => algorithm.$event $arguments,
                $(Self::$Name(algorithm) => algorithm.$event $arguments,)*
            }
        }
    };
}

pub(super) use {controls, event, events};
