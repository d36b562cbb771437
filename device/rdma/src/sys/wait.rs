//! Waiting for completions, for events of the connection manager and for a descriptor of the caller at once.
//!
//! rockery's library has a function for that, which wakes one thread in place of two and needs no
//! notification of the completion queue. With other libraries the descriptor of the completion channel is
//! waited for.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::Duration;

use super::connection::Connection;
use super::library::check_call;
use crate::Error;

/// A descriptor of the caller, and what it waits for there.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The file descriptor, as of a socket.
    pub descriptor: RawFd,
    /// Ends the wait when it is readable.
    pub reads: bool,
    /// Ends the wait when it is writable.
    pub writes: bool,
}

/// The reason why a wait has ended. All false: the time was over, or a signal came.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Woken {
    /// [`Connection::poll`] may find completions.
    pub completions: bool,
    /// [`Connection::check_events`] may find that the connection has ended.
    pub state: bool,
    /// The caller's descriptor is ready; `None` where it was not looked at, because of completions that are
    /// there already.
    pub other: Option<bool>,
}

/// Bits that [`Library::wait_cq`](super::library::Library) returns.
const COMPLETIONS: c_int = 1;
const LOOKED: c_int = 2;

fn polled(descriptor: RawFd, events: i16) -> libc::pollfd {
    // `poll` reports errors of a descriptor whatever the events: it ignores a negative number.
    libc::pollfd {
        fd: if events == 0 { -1 } else { descriptor },
        events,
        revents: 0,
    }
}

impl Watched {
    fn polled(self) -> libc::pollfd {
        let reads = if self.reads { libc::POLLIN } else { 0 };
        polled(
            self.descriptor,
            reads | if self.writes { libc::POLLOUT } else { 0 },
        )
    }
}

impl Connection {
    /// Posts the lists, and waits until requests have completed, the connection's state has changed, the
    /// caller's descriptor is ready, or the time is over. With rockery's library the thread polls for so long
    /// (`polls`) before it sleeps, if that has helped lately. The caller calls this again soon, or calls
    /// [`Connection::arm`] before it waits elsewhere.
    ///
    /// # Errors
    /// When the connection is broken, or a descriptor cannot be waited for.
    pub fn wait(
        &mut self,
        other: Option<Watched>,
        polls: Duration,
        most: Option<Duration>,
    ) -> Result<Woken, Error> {
        self.flush()?;
        let [completions, state] = self.descriptors();
        let other = other.map_or(polled(-1, 0), Watched::polled);
        let mut found = [
            polled(state, libc::POLLIN),
            other,
            polled(completions, libc::POLLIN),
        ];
        let Some(wait) = self.wait_function() else {
            return self.wait_for_channel(&mut found, most);
        };
        let most = most.map_or(-1, |most| {
            i64::try_from(most.as_nanos()).unwrap_or(i64::MAX)
        });
        let polls = u64::try_from(polls.as_nanos()).unwrap_or(u64::MAX);
        let others = &mut found[..2];
        // SAFETY: the connection's queue, and descriptors of which the number is given.
        let code = unsafe {
            wait(
                self.completion_queue(),
                others.as_mut_ptr(),
                others.len() as u32,
                polls,
                most,
            )
        };
        check_call("rockery_await_cq", code.min(0))?;
        let looked = code & LOOKED != 0;
        Ok(Woken {
            completions: code & COMPLETIONS != 0,
            state: looked && found[0].revents != 0,
            other: looked.then_some(found[1].revents != 0),
        })
    }

    /// Announces that this thread waits for more than completions while it polls, as for a disk. rockery's
    /// library lets a thread that finds no completions sleep for up to half a millisecond in
    /// [`Connection::poll_most`], where other threads need the processor; it returns at once to this thread
    /// from now on. Other libraries always return at once.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn announce_other_waits(&mut self) -> Result<(), Error> {
        if self.wait_function().is_some() {
            // The library notes each thread that waits by this function, and a wait of no time is enough.
            self.wait(None, Duration::ZERO, Some(Duration::ZERO))?;
        }
        Ok(())
    }

    fn wait_for_channel(
        &mut self,
        found: &mut [libc::pollfd; 3],
        most: Option<Duration>,
    ) -> Result<Woken, Error> {
        if !self.is_armed {
            self.arm()?;
            self.is_armed = true;
            // Completions that arrived before arming cause no notification.
            return Ok(Woken {
                completions: true,
                ..Woken::default()
            });
        }
        // A limit is met late rather than polled for: the call counts whole milliseconds.
        let most = most.map_or(-1, |most| {
            c_int::try_from(most.as_millis() + 1).unwrap_or(c_int::MAX)
        });
        // SAFETY: as many entries as are said.
        let count = unsafe { libc::poll(found.as_mut_ptr(), found.len() as libc::nfds_t, most) };
        match check_call("poll", count.min(0)) {
            Err(Error::Call { source, .. }) if source.kind() == std::io::ErrorKind::Interrupted => {
                Ok(Woken {
                    other: Some(false),
                    ..Woken::default()
                })
            }
            Err(error) => Err(error),
            Ok(()) => {
                let [state, other, completions] = found.map(|it| it.revents != 0);
                self.is_armed &= !completions;
                Ok(Woken {
                    completions,
                    state,
                    other: Some(other),
                })
            }
        }
    }
}
