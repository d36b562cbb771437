//! Both sides of DH-HMAC-CHAP: messages of one side reach the other as they are, damaged, or as bytes of
//! the input.
//!
//! The input is a byte that chooses whether both have the same secret, then steps: a byte that chooses the
//! event, a length, and bytes.
#![no_main]

use nvme::auth::{Authenticator, Group, Progress, Secret, Secrets, Supplicant};

const STEPS_MAX: usize = 24;

fn secrets(byte: u8) -> Secrets {
    let secret = || Secret::new(&[byte; 32], None).expect("it has the right length");
    // Without exchange: powers are slow, and not the messages.
    Secrets {
        secret: secret(),
        controller_secret: Some(secret()),
        group: Some(Group::Null),
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, mut rest)) = bytes.split_first() else {
        return;
    };
    let shared = kind & 1 == 0;
    let mut controller = Authenticator::new("nqn.host", "nqn.disk", secrets(1));
    let mut host = Supplicant::new(
        "nqn.host",
        "nqn.disk",
        secrets(if shared { 1 } else { 2 }),
        7,
    );
    let mut random = |place: &mut [u8]| place.fill(kind);
    let mut to_controller = host.begin();
    let mut to_host = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some((&[action, length], after)) = rest.split_first_chunk() else {
            break;
        };
        let (part, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let message = if action & 1 == 0 {
            &mut to_controller
        } else {
            &mut to_host
        };
        match action >> 1 & 3 {
            0 => {}
            1 => *message = part.to_vec(),
            2 => message.truncate(length.into()),
            _ => message
                .iter_mut()
                .zip(part)
                .for_each(|(byte, other)| *byte ^= other),
        }
        if action & 1 == 0 {
            let progress = controller.receive(&to_controller, &mut random);
            assert!(
                shared || progress != Progress::Authenticated,
                "believed without the secret"
            );
            to_host = controller.next_message().unwrap_or_default();
        } else {
            let (answer, progress) = host.receive(&to_host, &mut random);
            assert!(
                shared || progress != Progress::Authenticated,
                "the host believed without the secret"
            );
            to_controller = answer;
        }
    }
});
