//! Negotiation: the first message of each side (MS-SMBD 3.1.5.2 to 3.1.5.7), and the parameters agreed on.

use thiserror::Error;
use wire::smb::direct::{
    FRAGMENTED_SIZE_MIN, NegotiateRequest, NegotiateResponse, RECEIVE_SIZE_MIN,
    STATUS_NOT_SUPPORTED, STATUS_SUCCESS, VERSION,
};

use super::Parameters;

/// The parameters that the two sides have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Agreement {
    /// The largest message that this side sends, in bytes.
    pub send_size: u32,
    /// The largest message that the peer sends, in bytes.
    pub receive_size: u32,
    /// The largest message, before it is cut into fragments, that the peer takes, in bytes.
    pub fragmented_send_size: u32,
    /// The most bytes of one RDMA READ or WRITE.
    pub read_write_size: u32,
    /// How many receives the peer would like this side to post.
    pub receives: u16,
}

/// Why a negotiate message cannot be accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NegotiationError {
    /// The message has another length than a negotiate message.
    #[error("SMB Direct: negotiate message of {length} bytes")]
    Length {
        /// The bytes of the message.
        length: usize,
    },
    /// The range of versions does not contain 1.0.
    #[error(
        "SMB Direct: the peer speaks versions {min:#06x} to {max:#06x}, this side {VERSION:#06x}"
    )]
    Version {
        /// The field MinVersion.
        min: u16,
        /// The field MaxVersion.
        max: u16,
    },
    /// The peer requests no credits, or grants none.
    #[error("SMB Direct: negotiate message with 0 credits")]
    NoCredits,
    /// A size is below the least that the specification allows.
    #[error("SMB Direct: {field} of {value} bytes, at least {least} are needed")]
    TooSmall {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        value: u32,
        /// The least value.
        least: u32,
    },
    /// The peer would send longer messages than this side receives.
    #[error("SMB Direct: the peer would send messages of {size} bytes, this side receives {limit}")]
    SendSize {
        /// The field PreferredSendSize.
        size: u32,
        /// The size that this side receives at most, in bytes.
        limit: u32,
    },
    /// The listener refused.
    #[error("SMB Direct: the listener refused with status {status:#010x}")]
    Refused {
        /// The listener's NTSTATUS.
        status: u32,
    },
}

impl NegotiationError {
    /// The status of the negotiate response that tells the peer; `None` where the connection is dropped
    /// without a word (MS-SMBD 3.1.5.2).
    pub(super) const fn status(&self) -> Option<u32> {
        match self {
            Self::Version { .. } => Some(STATUS_NOT_SUPPORTED),
            _ => None,
        }
    }
}

fn at_least(field: &'static str, value: u32, least: u32) -> Result<(), NegotiationError> {
    if value < least {
        Err(NegotiationError::TooSmall {
            field,
            value,
            least,
        })
    } else {
        Ok(())
    }
}

pub(super) fn request(parameters: &Parameters) -> [u8; NegotiateRequest::SIZE] {
    let message = NegotiateRequest {
        min_version: VERSION,
        max_version: VERSION,
        credits_requested: parameters.credits,
        preferred_send_size: parameters.send_size,
        max_receive_size: parameters.receive_size,
        max_fragmented_size: parameters.fragmented_size,
    };
    message.to_bytes()
}

/// Processes the request at the listener; returns the agreed parameters.
pub(super) fn accept(parameters: &Parameters, bytes: &[u8]) -> Result<Agreement, NegotiationError> {
    let length = NegotiationError::Length {
        length: bytes.len(),
    };
    let (request, _) = NegotiateRequest::split(bytes).ok_or(length)?;
    if !(request.min_version..=request.max_version).contains(&VERSION) {
        return Err(NegotiationError::Version {
            min: request.min_version,
            max: request.max_version,
        });
    }
    if request.credits_requested == 0 {
        return Err(NegotiationError::NoCredits);
    }
    at_least("MaxReceiveSize", request.max_receive_size, RECEIVE_SIZE_MIN)?;
    at_least(
        "MaxFragmentedSize",
        request.max_fragmented_size,
        FRAGMENTED_SIZE_MIN,
    )?;
    Ok(Agreement {
        send_size: parameters.send_size.min(request.max_receive_size),
        receive_size: parameters
            .receive_size
            .min(request.preferred_send_size)
            .max(RECEIVE_SIZE_MIN),
        fragmented_send_size: request.max_fragmented_size,
        read_write_size: parameters.read_write_size,
        receives: request.credits_requested,
    })
}

pub(super) fn response(
    parameters: &Parameters,
    agreement: &Agreement,
    credits_granted: u16,
) -> [u8; NegotiateResponse::SIZE] {
    let message = NegotiateResponse {
        min_version: VERSION,
        max_version: VERSION,
        negotiated_version: VERSION,
        credits_requested: parameters.credits,
        credits_granted,
        status: STATUS_SUCCESS,
        max_read_write_size: agreement.read_write_size,
        preferred_send_size: agreement.send_size,
        max_receive_size: agreement.receive_size,
        max_fragmented_size: parameters.fragmented_size,
    };
    message.to_bytes()
}

/// A response that contains nothing but the reason for the refusal.
pub(super) fn refusal(status: u32) -> [u8; NegotiateResponse::SIZE] {
    let message = NegotiateResponse {
        min_version: VERSION,
        max_version: VERSION,
        status,
        ..NegotiateResponse::default()
    };
    message.to_bytes()
}

/// Processes the response at the initiator; returns the agreed parameters, and the credits that it grants.
pub(super) fn conclude(
    parameters: &Parameters,
    bytes: &[u8],
) -> Result<(Agreement, u16), NegotiationError> {
    let length = NegotiationError::Length {
        length: bytes.len(),
    };
    let (response, _) = NegotiateResponse::split(bytes).ok_or(length)?;
    if response.status != STATUS_SUCCESS {
        return Err(NegotiationError::Refused {
            status: response.status,
        });
    }
    if response.negotiated_version != VERSION {
        return Err(NegotiationError::Version {
            min: response.min_version,
            max: response.max_version,
        });
    }
    if response.credits_requested == 0 || response.credits_granted == 0 {
        return Err(NegotiationError::NoCredits);
    }
    at_least(
        "MaxReceiveSize",
        response.max_receive_size,
        RECEIVE_SIZE_MIN,
    )?;
    at_least(
        "MaxFragmentedSize",
        response.max_fragmented_size,
        FRAGMENTED_SIZE_MIN,
    )?;
    let (size, limit) = (response.preferred_send_size, parameters.receive_size);
    if size > limit {
        return Err(NegotiationError::SendSize { size, limit });
    }
    let agreement = Agreement {
        send_size: parameters.send_size.min(response.max_receive_size),
        receive_size: limit,
        fragmented_send_size: response.max_fragmented_size,
        read_write_size: parameters.read_write_size.min(response.max_read_write_size),
        receives: response.credits_requested,
    };
    Ok((agreement, response.credits_granted))
}
