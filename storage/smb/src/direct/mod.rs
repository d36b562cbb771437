//! One SMB Direct connection (MS-SMBD 3.1).
//!
//! The driver owns the RDMA connection. It posts as many receives as [`Connection::receives_to_post`] asks
//! for and reports them, hands each received message to [`Connection::receive`], sends what
//! [`Connection::poll_transmit`] makes, and calls [`Connection::handle_timeout`] at [`Connection::deadline`].
//! Times are durations since an origin that the driver chooses.
//!
//! Reading order: [`negotiation`] for the first two messages, [`credits`] for the flow control of messages,
//! [`outgoing`] and [`incoming`] for fragments.

pub mod credits;
pub mod incoming;
pub mod negotiation;
pub mod outgoing;

use std::time::Duration;

use thiserror::Error;
use wire::smb::direct::{DataTransfer, DataTransferError, RESPONSE_REQUESTED};

use credits::Credits;
use incoming::{Fragment, Incoming, ReassemblyError};
use negotiation::{Agreement, NegotiationError};
use outgoing::Outgoing;

/// The parameters that this side offers. The defaults are those of Windows but for `fragmented_size`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Receives that this side posts at most, and sends that it wants to have under way. At least 1.
    pub credits: u16,
    /// The largest message that this side sends, in bytes.
    pub send_size: u32,
    /// The largest message that this side receives, in bytes. At least 128.
    pub receive_size: u32,
    /// The largest reassembled message that this side receives, in bytes. At least 131,072.
    pub fragmented_size: u32,
    /// The most bytes of one RDMA READ or WRITE.
    pub read_write_size: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            credits: 255,
            // The receiver's size limits it: 8192 bytes for Windows and rockery, 1364 for Linux.
            send_size: 8192,
            receive_size: 8192,
            // Fragments are passed on as they come, so that the length costs no memory.
            fragmented_size: (8 << 20) + (64 << 10),
            read_write_size: 8 << 20,
        }
    }
}

/// How long an initiator waits for the negotiate response (MS-SMBD 3.1.2).
pub const NEGOTIATE_INITIATOR: Duration = Duration::from_secs(120);
/// How long a listener waits for the negotiate request (MS-SMBD 3.1.2).
pub const NEGOTIATE_LISTENER: Duration = Duration::from_secs(5);
/// After how long without a message from the peer one is asked for (MS-SMBD 3.1.2).
pub const IDLE: Duration = Duration::from_secs(120);
/// How long the peer may take to send the message that was requested (MS-SMBD 3.1.2).
pub const RESPONSE: Duration = Duration::from_secs(5);
/// After how long credits go to a peer that has none left, if its last message had no data. Without the delay
/// two sides with one credit each would answer empty messages with empty messages at full speed.
pub const GRANT_DELAY: Duration = Duration::from_millis(20);

/// Why a connection has ended, or has to be ended by the driver.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Closed {
    /// The first message of the peer cannot be accepted.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// A message of the peer is not a data transfer.
    #[error(transparent)]
    Message(#[from] DataTransferError),
    /// A fragment is out of place.
    #[error(transparent)]
    Reassembly(#[from] ReassemblyError),
    /// The peer sent although it had no credit.
    #[error("SMB Direct: the peer sent a message without a credit")]
    NoCredit,
    /// The peer did not send its negotiate message in time.
    #[error("SMB Direct: no negotiate message within {0:?}")]
    NegotiationTimeout(Duration),
    /// The peer sent no message in time after one was requested.
    #[error("SMB Direct: no message within {0:?} after one was asked for")]
    ResponseTimeout(Duration),
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The sides have not agreed yet, or the connection has ended.
    #[error("SMB Direct: the connection is not established")]
    NotEstablished,
    /// The peer reassembles shorter messages only.
    #[error("SMB Direct: a message of {length} bytes, the peer takes {limit} (MaxFragmentedSize)")]
    TooLong {
        /// The length of the message, in bytes.
        length: u32,
        /// The peer's limit, in bytes.
        limit: u32,
    },
    /// SMB has no message without bytes.
    #[error("SMB Direct: a message without bytes")]
    Empty,
    /// More bytes than the message was announced to have.
    #[error("SMB Direct: {extra} bytes more than the announced length of the message")]
    TooMany {
        /// The number of bytes beyond the announced length.
        extra: usize,
    },
}

/// A message to be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// How many bytes of the buffer it has.
    pub length: usize,
    /// The key that SEND with invalidate names; none for a plain SEND.
    pub invalidate: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// An initiator whose request is to be sent.
    Requesting,
    /// An initiator that waits for the response.
    Requested,
    /// A listener that waits for the request.
    Listening,
    /// A listener whose response is to be sent, with this status.
    Responding { status: u32 },
    /// Data may be sent and received.
    Established,
    /// Nothing goes in or out.
    Closed,
}

/// Deadlines, each of which runs or does not.
#[derive(Clone, Copy, Default, Debug)]
struct Timers {
    negotiate: Option<Duration>,
    idle: Option<Duration>,
    response: Option<Duration>,
    grant: Option<Duration>,
}

impl Timers {
    fn next(&self) -> Option<Duration> {
        [self.negotiate, self.idle, self.response, self.grant]
            .into_iter()
            .flatten()
            .min()
    }
}

/// A connection, either side of it.
#[derive(Debug)]
pub struct Connection {
    parameters: Parameters,
    state: State,
    agreement: Agreement,
    credits: Credits,
    outgoing: Outgoing,
    incoming: Incoming,
    timers: Timers,
    /// The peer has asked for a message at once.
    must_respond: bool,
    /// The next message asks the peer for one.
    asks_for_response: bool,
    /// The peer's last message had data, so that credits for it are worth a message at once.
    peer_sends_data: bool,
    /// The credits that the peer's last message requested.
    peer_requests: u16,
}

impl Connection {
    /// The side that connected: it sends the negotiate request.
    pub fn initiator(parameters: Parameters, now: Duration) -> Self {
        Self::new(parameters, State::Requesting, now + NEGOTIATE_INITIATOR)
    }

    /// The side that accepted: it waits for the negotiate request.
    pub fn listener(parameters: Parameters, now: Duration) -> Self {
        Self::new(parameters, State::Listening, now + NEGOTIATE_LISTENER)
    }

    fn new(parameters: Parameters, state: State, negotiate: Duration) -> Self {
        Self {
            parameters,
            state,
            agreement: Agreement::default(),
            // The peer's first message needs one receive.
            credits: Credits::for_negotiation(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            timers: Timers {
                negotiate: Some(negotiate),
                ..Timers::default()
            },
            must_respond: false,
            asks_for_response: false,
            peer_sends_data: false,
            peer_requests: 1,
        }
    }

    /// Whether data may be sent and received.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// The agreed parameters, once the connection is established.
    pub fn agreement(&self) -> Option<&Agreement> {
        self.is_established().then_some(&self.agreement)
    }

    /// How many more receives the driver is to post, each of [`Parameters::receive_size`] bytes.
    pub fn receives_to_post(&self) -> u16 {
        self.credits.receives_to_post()
    }

    /// The driver has posted receives: only those are granted to the peer.
    pub fn receives_posted(&mut self, count: u16) {
        self.credits.receives_posted(count);
    }

    /// Sets how many receives this side posts at most, and requests as many credits of the peer. A listener
    /// begins with few for a peer that has not set up a session.
    pub fn set_credits(&mut self, credits: u16) {
        self.parameters.credits = credits.max(1);
        self.credits
            .set_target(self.peer_requests.min(self.parameters.credits));
    }

    /// Announces a message of `length` bytes, which [`Connection::append`] fills. The key is invalidated at
    /// the peer by the message's last fragment.
    ///
    /// # Errors
    /// [`SendError`] when the peer would not take it.
    pub fn begin(&mut self, length: u32, invalidate: Option<u32>) -> Result<(), SendError> {
        let limit = self
            .agreement()
            .ok_or(SendError::NotEstablished)?
            .fragmented_send_size;
        match length {
            0 => Err(SendError::Empty),
            length if length > limit => Err(SendError::TooLong { length, limit }),
            length => {
                self.outgoing.begin(length, invalidate);
                Ok(())
            }
        }
    }

    /// Bytes of the message that was announced last and is not complete.
    ///
    /// # Errors
    /// [`SendError::TooMany`] when the message would be longer than announced.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        self.outgoing.append(bytes)
    }

    /// Sends a whole message.
    ///
    /// # Errors
    /// As [`Connection::begin`].
    pub fn send(&mut self, message: &[u8], invalidate: Option<u32>) -> Result<(), SendError> {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        self.begin(length, invalidate)?;
        self.append(message)
    }

    /// Bytes that wait to be sent. A driver that reads them from elsewhere stops while there are many.
    pub fn buffered(&self) -> usize {
        self.outgoing.buffered()
    }

    /// Handles a received message. The fragment's data, if it has any, are in `bytes`.
    ///
    /// # Errors
    /// [`Closed`]: the driver sends what [`Connection::poll_transmit`] still has, then disconnects.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
        now: Duration,
    ) -> Result<Option<Fragment<'a>>, Closed> {
        let handled = match self.state {
            State::Listening => self.handle_request(bytes, now).map(|()| None),
            State::Requested => self.handle_response(bytes, now).map(|()| None),
            State::Established => self.handle_data(bytes, now),
            State::Requesting | State::Responding { .. } => Err(Closed::NoCredit),
            State::Closed => return Ok(None),
        };
        if handled.is_err() && !matches!(self.state, State::Responding { .. }) {
            self.close();
        }
        handled
    }

    fn handle_request(&mut self, bytes: &[u8], now: Duration) -> Result<(), Closed> {
        self.credits.consumed_by_negotiation();
        let (status, outcome) = match negotiation::accept(&self.parameters, bytes) {
            Ok(agreement) => {
                self.agreement = agreement;
                self.peer_requests = agreement.receives;
                self.credits
                    .set_target(self.peer_requests.min(self.parameters.credits));
                (wire::smb::direct::STATUS_SUCCESS, Ok(()))
            }
            Err(error) => match error.status() {
                // The response contains the reason; without credits the peer cannot continue.
                Some(status) => (status, Err(error.into())),
                None => return Err(error.into()),
            },
        };
        self.state = State::Responding { status };
        self.timers = Timers {
            negotiate: Some(now + NEGOTIATE_LISTENER),
            ..Timers::default()
        };
        outcome
    }

    fn handle_response(&mut self, bytes: &[u8], now: Duration) -> Result<(), Closed> {
        self.credits.consumed_by_negotiation();
        let (agreement, credits) = negotiation::conclude(&self.parameters, bytes)?;
        self.agreement = agreement;
        self.peer_requests = agreement.receives;
        self.credits
            .set_target(self.peer_requests.min(self.parameters.credits));
        self.credits.granted_by_peer(credits);
        self.establish(now);
        // The listener cannot send before it has credits, and may have the first message.
        self.timers.grant = Some(now + GRANT_DELAY);
        Ok(())
    }

    fn establish(&mut self, now: Duration) {
        self.state = State::Established;
        self.timers = Timers {
            idle: Some(now + IDLE),
            ..Timers::default()
        };
    }

    fn handle_data<'a>(
        &mut self,
        bytes: &'a [u8],
        now: Duration,
    ) -> Result<Option<Fragment<'a>>, Closed> {
        self.credits.consumed().ok_or(Closed::NoCredit)?;
        let (header, data) = DataTransfer::parse_message(bytes)?;
        self.peer_requests = header.credits_requested;
        self.credits
            .set_target(self.peer_requests.min(self.parameters.credits));
        self.credits.granted_by_peer(header.credits_granted);
        self.must_respond |= header.flags & RESPONSE_REQUESTED != 0;
        self.timers.idle = Some(now + IDLE);
        self.timers.response = None;
        self.peer_sends_data = !data.is_empty();
        self.timers.grant = Some(now + GRANT_DELAY);
        let limit = self.parameters.fragmented_size;
        Ok(self
            .incoming
            .fragment(data, header.remaining_data_length, limit)?)
    }

    /// The next message to send, written to the start of `buffer`, which has at least
    /// [`Agreement::send_size`] bytes; `None` when nothing is to be sent now.
    pub fn poll_transmit(&mut self, buffer: &mut [u8], now: Duration) -> Option<Transmit> {
        match self.state {
            State::Requesting => {
                self.state = State::Requested;
                Some(plain(negotiation::request(&self.parameters), buffer))
            }
            State::Responding { status } if status == wire::smb::direct::STATUS_SUCCESS => {
                let granted = self.credits.grant_all();
                if granted == 0 {
                    return None;
                }
                self.establish(now);
                Some(plain(
                    negotiation::response(&self.parameters, &self.agreement, granted),
                    buffer,
                ))
            }
            State::Responding { status } => {
                self.close();
                Some(plain(negotiation::refusal(status), buffer))
            }
            State::Established => self.poll_data(buffer, now),
            State::Requested | State::Listening | State::Closed => None,
        }
    }

    fn poll_data(&mut self, buffer: &mut [u8], now: Duration) -> Option<Transmit> {
        if !self.credits.may_send() {
            return None;
        }
        let room = (self.agreement.send_size as usize).min(buffer.len());
        let fragment = self.outgoing.next_fragment(buffer.get_mut(..room)?);
        let grants_now = self.credits.peer_is_short()
            && (self.peer_sends_data || self.timers.grant.is_some_and(|deadline| deadline <= now));
        if fragment.is_none() && !self.must_respond && !self.asks_for_response && !grants_now {
            return None;
        }
        let credits_granted = self.credits.send();
        let fragment = fragment.unwrap_or_default();
        let header = DataTransfer {
            credits_requested: self.parameters.credits,
            credits_granted,
            flags: if self.asks_for_response {
                RESPONSE_REQUESTED
            } else {
                0
            },
            remaining_data_length: fragment.remaining,
            data_offset: if fragment.length == 0 {
                0
            } else {
                wire::smb::direct::DATA_OFFSET as u32
            },
            data_length: fragment.length,
        };
        (
            self.must_respond,
            self.asks_for_response,
            self.peer_sends_data,
        ) = (false, false, false);
        Some(outgoing::frame(&header, fragment.invalidate, buffer))
    }

    /// When [`Connection::handle_timeout`] is to be called, if nothing happens before.
    pub fn deadline(&self) -> Option<Duration> {
        let mut timers = self.timers;
        // Credits that cannot be sent anyway wait for a receive, not for the clock.
        if !self.credits.peer_is_short() || !self.credits.may_send() {
            timers.grant = None;
        }
        timers.next()
    }

    /// Handles the passing of time; [`Connection::poll_transmit`] may have something afterwards.
    ///
    /// # Errors
    /// [`Closed`] when the peer has been silent for too long.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), Closed> {
        let is_over = |timer: Option<Duration>| timer.is_some_and(|deadline| deadline <= now);
        if is_over(self.timers.negotiate) {
            let listens = matches!(self.state, State::Listening | State::Responding { .. });
            self.close();
            let time = if listens {
                NEGOTIATE_LISTENER
            } else {
                NEGOTIATE_INITIATOR
            };
            return Err(Closed::NegotiationTimeout(time));
        }
        if is_over(self.timers.response) {
            self.close();
            return Err(Closed::ResponseTimeout(RESPONSE));
        }
        if is_over(self.timers.idle) {
            self.timers.idle = None;
            self.timers.response = Some(now + RESPONSE);
            self.asks_for_response = true;
        }
        Ok(())
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.timers = Timers::default();
    }
}

/// Writes a message without data to the start of the buffer.
fn plain<const N: usize>(message: [u8; N], buffer: &mut [u8]) -> Transmit {
    if let Some(place) = buffer.first_chunk_mut() {
        *place = message;
    }
    Transmit {
        length: N,
        invalidate: None,
    }
}
