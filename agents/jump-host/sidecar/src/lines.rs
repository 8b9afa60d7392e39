//! Lines of a stream that others write, each of bounded length.

use std::mem;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Bytes of a line that are kept; the rest is dropped. sshd writes shorter lines.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// The lines of a reader.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    /// The line that is being read: a wait for the rest of it may be dropped.
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Those that a reader has.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
        }
    }

    /// The next line without its end, or its first 8 KiB. `None`: there are no more. A wait for it may be dropped: nothing is lost.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let there = self.reader.fill_buf().await.unwrap_or_default();
            if there.is_empty() {
                return (!self.line.is_empty()).then(|| self.take());
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let part = &there[..end.unwrap_or(there.len())];
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let read = part.len() + usize::from(end.is_some());
            self.reader.consume(read);
            if end.is_some() {
                return Some(self.take());
            }
        }
    }

    fn take(&mut self) -> String {
        let line = mem::take(&mut self.line);
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endless_line_is_cut_and_the_next_one_is_whole() {
        let endless = "x".repeat(100_000);
        let text = format!("first\r\n{endless}\n\nlast");
        let mut lines = Lines::new(text.as_bytes());
        let mut read = Vec::new();
        while let Some(line) = lines.next().await {
            read.push(line);
        }
        assert_eq!(read, ["first", &endless[..MAX_LINE_BYTES], "", "last"]);
    }
}
