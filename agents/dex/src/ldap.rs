//! The few messages of LDAP (RFC 4511) that a simple bind needs. Tenants name the servers, so an answer may contain anything: the agent reads it
//! without recursion, up to a bound, and treats everything but the expected answer as an error.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Name of the request for TLS (RFC 4511, 4.14.1).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const SEQUENCE: u8 = 0x30;
const BIND_REQUEST: u8 = 0x60;
const BIND_RESPONSE: u8 = 0x61;
const EXTENDED_REQUEST: u8 = 0x77;
const EXTENDED_RESPONSE: u8 = 0x78;
const UNBIND_REQUEST: u8 = 0x42;
/// `[0]`, primitive: the password of a simple bind, and the name of an extended request.
const CONTEXT_0: u8 = 0x80;

/// A request, and the kind of its answer.
pub(crate) struct Request {
    bytes: Vec<u8>,
    id: u8,
    answer: u8,
}

/// Why there is no result code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The connection fails.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// The answer is not one to the request.
    #[error("the answer is not LDAP")]
    Malformed,
}

impl Request {
    /// A simple bind of version 3.
    pub(crate) fn bind(name: &str, password: &str) -> Self {
        let parts = [
            element(INTEGER, &[3]),
            element(OCTETS, name.as_bytes()),
            element(CONTEXT_0, password.as_bytes()),
        ];
        Self::new(2, &element(BIND_REQUEST, &parts.concat()), BIND_RESPONSE)
    }

    /// A request for TLS on this connection.
    pub(crate) fn start_tls() -> Self {
        let request = element(EXTENDED_REQUEST, &element(CONTEXT_0, START_TLS));
        Self::new(1, &request, EXTENDED_RESPONSE)
    }

    fn new(id: u8, request: &[u8], answer: u8) -> Self {
        Self {
            bytes: message(id, request),
            id,
            answer,
        }
    }

    /// Sends the request, and reads the result code of its answer.
    pub(crate) async fn send(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<u32, Error> {
        stream.write_all(&self.bytes).await?;
        stream.flush().await?;
        let mut read = Vec::new();
        loop {
            if let Some(whole) = length(&read)? {
                // No other answer is expected yet; before TLS, further bytes could be an attacker's.
                if read.len() > whole {
                    return Err(Error::Malformed);
                }
                if read.len() == whole {
                    return result_code(&read, self.id, self.answer).ok_or(Error::Malformed);
                }
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the directory closed the connection",
                )
                .into());
            }
        }
    }
}

/// The message that ends a session. It has no answer.
pub(crate) fn unbind() -> Vec<u8> {
    message(3, &element(UNBIND_REQUEST, &[]))
}

fn message(id: u8, request: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&element(INTEGER, &[id]), request].concat())
}

/// An element in BER: tag, length, content.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => bytes.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let digits = length.iter().skip_while(|byte| **byte == 0);
            // At most eight digits.
            let count = u8::try_from(digits.clone().count()).unwrap_or_default();
            bytes.push(0x80 | count);
            bytes.extend(digits);
        }
    }
    bytes.extend_from_slice(content);
    bytes
}

/// How long the message is that begins here; `None` as long as that is not known.
fn length(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let Some((tag, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    if *tag != SEQUENCE {
        return Err(Error::Malformed);
    }
    let Some(first) = rest.first() else {
        return Ok(None);
    };
    let digits = if *first < 0x80 {
        0
    } else {
        usize::from(first & 0x7f)
    };
    // Longer lengths are beyond the bound, and 0x80 gives no length.
    if digits > 4 || *first == 0x80 {
        return Err(Error::Malformed);
    }
    if rest.len() <= digits {
        return Ok(None);
    }
    let (content, _) = content_length(rest).ok_or(Error::Malformed)?;
    let whole = 2 + digits + content;
    if whole > MAX_ANSWER_BYTES {
        return Err(Error::Malformed);
    }
    Ok(Some(whole))
}

/// The length of a content, and what follows the length. Only lengths that are given, in at most four bytes.
fn content_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first < 0x80 {
        return Some((usize::from(*first), rest));
    }
    let digits = usize::from(first & 0x7f);
    if !(1..=4).contains(&digits) {
        return None;
    }
    let (digits, rest) = rest.split_at_checked(digits)?;
    let mut length = 0_u32;
    for digit in digits {
        length = (length << 8) | u32::from(*digit);
    }
    Some((usize::try_from(length).ok()?, rest))
}

/// The content of the first element, which must have this tag, and what follows it.
fn content(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (length, rest) = content_length(rest)?;
    (*found == tag).then_some(())?;
    rest.split_at_checked(length)
}

/// The result code in a message of this number and kind.
fn result_code(bytes: &[u8], id: u8, kind: u8) -> Option<u32> {
    let (message, _) = content(bytes, SEQUENCE)?;
    let (number, message) = content(message, INTEGER)?;
    let (answer, _controls) = content(message, kind)?;
    let (code, answer) = content(answer, ENUMERATED)?;
    let (_name, answer) = content(answer, OCTETS)?;
    let (_diagnosis, _more) = content(answer, OCTETS)?;
    (unsigned(number)? == u32::from(id)).then_some(())?;
    unsigned(code)
}

/// A number of one to four bytes that is not negative.
fn unsigned(bytes: &[u8]) -> Option<u32> {
    let first = bytes.first()?;
    if *first >= 0x80 || bytes.len() > 4 {
        return None;
    }
    Some(
        bytes
            .iter()
            .fold(0, |number, byte| (number << 8) | u32::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    /// The result of a bind with this answer.
    async fn answered(answer: &[u8]) -> Result<u32, Error> {
        let (mut ours, mut theirs) = duplex(1 << 20);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        Request::bind("cn=search", "secret").send(&mut ours).await
    }

    fn answer(id: u8, kind: u8, code: &[u8]) -> Vec<u8> {
        let parts = [
            element(ENUMERATED, code),
            element(OCTETS, b""),
            element(OCTETS, b"no"),
        ];
        message(id, &element(kind, &parts.concat()))
    }

    #[tokio::test]
    async fn result_codes_are_read() {
        assert_eq!(answered(&answer(2, BIND_RESPONSE, &[0])).await.unwrap(), 0);
        assert_eq!(answered(&answer(2, BIND_RESPONSE, &[49])).await.unwrap(), 49);
        assert_eq!(
            answered(&answer(2, BIND_RESPONSE, &[0x10, 0x00])).await.unwrap(),
            4096
        );
        // Active Directory writes every length in four bytes.
        let long = [
            0x30, 0x84, 0, 0, 0, 12, 2, 1, 2, 0x61, 0x84, 0, 0, 0, 7, 10, 1, 49, 4, 0, 4, 0,
        ];
        let mut long = long.to_vec();
        long[5] = u8::try_from(long.len() - 6).unwrap();
        long[14] = u8::try_from(long.len() - 15).unwrap();
        assert_eq!(answered(&long).await.unwrap(), 49);
    }

    #[tokio::test]
    async fn malformed_answers_are_refused() {
        let good = answer(2, BIND_RESPONSE, &[0]);
        let nested = [vec![0x30, 0x84, 0, 0, 0x80, 0], [0x30, 0x80].repeat(0x4000)].concat();
        for bad in [
            vec![0x30, 0x00],
            vec![0x30, 0x80, 0x00, 0x00],
            vec![0x30, 0xff],
            vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            vec![0x30, 0x83, 0x01, 0x00, 0x00],
            vec![0x30, 0x85, 0, 0, 0, 0, 1, 0],
            vec![0x30, 0x03, 0x02, 0x01, 0x02],
            vec![0x30, 0x02, 0x02, 0x7f],
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            nested,
            answer(1, BIND_RESPONSE, &[0]),
            answer(2, EXTENDED_RESPONSE, &[0]),
            answer(2, BIND_RESPONSE, &[]),
            answer(2, BIND_RESPONSE, &[0xff]),
            answer(2, BIND_RESPONSE, &[1, 2, 3, 4, 5]),
            message(2, &element(BIND_RESPONSE, &element(ENUMERATED, &[0]))),
            [good.clone(), vec![0]].concat(),
        ] {
            let found = answered(&bad).await;
            assert!(matches!(found, Err(Error::Malformed)), "{bad:02x?}: {found:?}");
        }
        for cut in 0..good.len() {
            let found = answered(&good[..cut]).await;
            assert!(matches!(found, Err(Error::Connection(_))), "{cut}: {found:?}");
        }
    }

    #[test]
    fn requests_are_ber() {
        let bind = [
            &[0x30, 16, 2, 1, 2, 0x60, 11, 2, 1, 3, 4, 2][..],
            b"cn",
            &[0x80, 2],
            b"pw",
        ];
        assert_eq!(Request::bind("cn", "pw").bytes, bind.concat());
        let long = element(OCTETS, &[7; 300]);
        assert_eq!((&long[..4], long.len()), (&[4, 0x82, 1, 44][..], 304));
        assert_eq!(unbind(), [0x30, 5, 2, 1, 3, 0x42, 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = length(&bytes);
            let _ = result_code(&bytes, 2, BIND_RESPONSE);
            let mut framed = vec![SEQUENCE];
            framed.extend(&bytes);
            let _ = length(&framed);
            let _ = result_code(&message(2, &element(BIND_RESPONSE, &bytes)), 2, BIND_RESPONSE);
        }
    }
}
