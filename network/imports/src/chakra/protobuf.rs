//! Messages of Protocol Buffers: fields with their numbers.

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value<'a> {
    /// Whole numbers, booleans and enumerations.
    Number(u64),
    /// Strings, bytes, messages and packed lists.
    Bytes(&'a [u8]),
    /// Numbers with decimals, and whole ones of a fixed width, as their bits.
    Fixed64(u64),
    /// The same in 32 bits.
    Fixed32(u32),
}

/// A number that says what the field is, and its value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Field<'a> {
    pub number: u64,
    pub value: Value<'a>,
}

/// The rest of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn of(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// A number in groups of seven bits, the lowest first.
    pub(super) fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index as u32);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err("a number has no end")
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], &'static str> {
        let count = usize::try_from(count).ok();
        let (taken, rest) = count
            .and_then(|count| self.rest.split_at_checked(count))
            .ok_or("it ends within a field")?;
        self.rest = rest;
        Ok(taken)
    }

    /// The bytes of a message behind their number.
    pub(super) fn delimited(&mut self) -> Result<&'a [u8], &'static str> {
        let count = self.varint()?;
        self.take(count)
    }

    /// The next field, until the message ends.
    pub(super) fn field(&mut self) -> Result<Option<Field<'a>>, &'static str> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Value::Bytes(self.delimited()?),
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err("a field has a form that Protocol Buffers do not have"),
        };
        let number = key >> 3;
        Ok(Some(Field { number, value }))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let bytes = self.take(N as u64)?;
        bytes.try_into().map_err(|_| "it ends within a field")
    }
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) | Self::Fixed64(number) => Some(number),
            Self::Fixed32(number) => Some(u64::from(number)),
            Self::Bytes(_) => None,
        }
    }

    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Adds a number, or those of a packed list.
    pub(super) fn numbers(self, to: &mut Vec<u64>) -> Result<(), &'static str> {
        match self {
            Self::Bytes(bytes) => {
                let mut list = Reader::of(bytes);
                while !list.rest.is_empty() {
                    to.push(list.varint()?);
                }
            }
            other => to.extend(other.number()),
        }
        Ok(())
    }
}
