//! Base64 (RFC 4648, 4), for keys and secrets.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, at| {
            word << 8 | usize::from(*chunk.get(at).unwrap_or(&0))
        });
        for at in 0..4 {
            let letter = char::from(ALPHABET[word >> (18 - 6 * at) & 63]);
            text.push(if at <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

/// Decodes text, with or without padding; `None` when the text is not Base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::new();
    for chunk in text.chunks(4) {
        let mut word = 0;
        for at in 0..4 {
            let letter = chunk.get(at).map_or(Some(0), |it| {
                ALPHABET.iter().position(|letter| letter == it)
            })?;
            word = word << 6 | letter as u32;
        }
        bytes.extend(
            word.to_be_bytes()
                .get(1..chunk.len())
                .filter(|_| chunk.len() > 1)?,
        );
    }
    Some(bytes)
}
