//! Text in fields of a fixed size: ASCII padded with spaces, or UTF-8 that ends with the first zero.

/// `text` in `N` bytes, the rest spaces: serial numbers, model names, service ids (Base 1.4.2). Longer text
/// is cut off.
pub fn spaced<const N: usize>(text: &str) -> [u8; N] {
    filled(text, b' ')
}

/// `text` in `N` bytes, the rest zeros: qualified names. Longer text is cut off, a zero always ends it.
pub fn zeroed<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = filled(text, 0);
    if let Some(last) = bytes.last_mut() {
        *last = 0;
    }
    bytes
}

fn filled<const N: usize>(text: &str, filler: u8) -> [u8; N] {
    let mut bytes = [filler; N];
    for (place, byte) in bytes.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    bytes
}

/// The text before the first zero, without spaces at its end; `None` when it is not UTF-8.
pub fn text_of(bytes: &[u8]) -> Option<&str> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = core::str::from_utf8(bytes.get(..end)?).ok()?;
    Some(text.trim_end_matches(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_both_fillers() {
        assert_eq!(&spaced::<4>("ab"), b"ab  ");
        assert_eq!(&zeroed::<4>("abcd"), b"abc\0");
        assert_eq!(
            (text_of(b"ab  "), text_of(b"ab\0x"), text_of(b"\xff")),
            (Some("ab"), Some("ab"), None)
        );
    }
}
