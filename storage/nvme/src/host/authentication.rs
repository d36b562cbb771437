//! Authentication of the host to the target, and of the target to the host if configured (Base 8.13.5).

use wire::nvme::{Fabrics, auth};

use super::HostError;
use super::commands::Payload;
use super::queue::Queue;
use crate::auth::{Progress, Secrets, Supplicant};
use crate::limits::AUTHENTICATION_BYTES_MAX;
use crate::nqn::Nqn;

/// Exchanges DH-HMAC-CHAP messages until the authentication has succeeded or failed.
pub(super) fn prove(
    queue: &mut Queue,
    host: &Nqn,
    subsystem: &Nqn,
    secrets: &Secrets,
) -> Result<(), HostError> {
    let mut failure = None;
    let mut random = |bytes: &mut [u8]| failure = failure.or(getrandom::fill(bytes).err());
    let mut number = [0; 2];
    random(&mut number);
    let transaction = u16::from_le_bytes(number);
    let mut supplicant = Supplicant::new(
        host.as_str(),
        subsystem.as_str(),
        secrets.clone(),
        transaction,
    );
    send(queue, &supplicant.begin())?;
    loop {
        let heard = receive(queue)?;
        let (answer, progress) = supplicant.receive(&heard, &mut random);
        if !answer.is_empty() {
            send(queue, &answer)?;
        }
        match progress {
            Progress::Continues => {}
            Progress::Authenticated => break,
            Progress::Failed => return Err(HostError::NotBelieved),
        }
    }
    match failure {
        None => Ok(()),
        Some(failure) => Err(HostError::Random(failure)),
    }
}

fn send(queue: &mut Queue, message: &[u8]) -> Result<(), HostError> {
    let mut buffer = queue.buffer(message.len())?;
    buffer[..message.len()].copy_from_slice(message);
    let command = auth::command(Fabrics::AuthenticationSend, 0, message.len() as u32);
    queue
        .call(
            "Authentication Send",
            command,
            Payload::Out(buffer, message.len()),
        )
        .map(drop)
}

fn receive(queue: &mut Queue) -> Result<Vec<u8>, HostError> {
    let length = AUTHENTICATION_BYTES_MAX as usize;
    let command = auth::command(Fabrics::AuthenticationReceive, 0, AUTHENTICATION_BYTES_MAX);
    let done = queue.call(
        "Authentication Receive",
        command,
        Payload::In(queue.buffer(length)?, length),
    )?;
    let heard = done.buffer.as_deref().and_then(|bytes| bytes.get(..length));
    heard.map(<[u8]>::to_vec).ok_or(HostError::Protocol(
        "Authentication Receive ended without data",
    ))
}
