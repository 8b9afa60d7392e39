//! What a Markdown document consists of, as far as it can be wrong.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::repository;

/// A document, reduced to what is checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// Its path from the root of the project.
    pub(crate) path: String,
    /// Its headings: level and text.
    pub(crate) headings: Vec<(u8, String)>,
    /// Targets of links and images.
    pub(crate) links: Vec<Located>,
    /// Inline code.
    pub(crate) code: Vec<Located>,
    /// Fenced code blocks.
    pub(crate) blocks: Vec<Block>,
}

/// A piece of text in a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// Line in the document, from 1.
    pub(crate) line: usize,
    /// The text.
    pub(crate) text: String,
}

/// A fenced code block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line of its fence, from 1.
    pub(crate) line: usize,
    /// The word after the fence.
    pub(crate) language: String,
    /// What is between the fences.
    pub(crate) text: String,
}

/// All documents of the project.
pub(crate) fn documents() -> Vec<Document> {
    let read = |path: String| {
        let text = repository::text(&path).unwrap_or_else(|| panic!("{path} is not UTF-8"));
        parse(&path, &text)
    };
    repository::files_ending(".md").into_iter().map(read).collect()
}

pub(crate) fn parse(path: &str, text: &str) -> Document {
    let mut document = Document {
        path: path.to_owned(),
        ..Document::default()
    };
    let mut heading: Option<(u8, String)> = None;
    let mut block: Option<Block> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = text[..range.start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::Heading { level, .. }) => heading = Some((level as u8, String::new())),
            Event::End(TagEnd::Heading(_)) => document.headings.extend(heading.take()),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                block = Some(Block {
                    line,
                    language: language.to_string(),
                    text: String::new(),
                });
            }
            Event::End(TagEnd::CodeBlock) => document.blocks.extend(block.take()),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                document.links.push(Located {
                    line,
                    text: dest_url.to_string(),
                });
            }
            Event::Code(code) => {
                if let Some((_, title)) = &mut heading {
                    title.push_str(&code);
                }
                document.code.push(Located {
                    line,
                    text: code.to_string(),
                });
            }
            Event::Text(words) => {
                if let Some(block) = &mut block {
                    block.text.push_str(&words);
                } else if let Some((_, title)) = &mut heading {
                    title.push_str(&words);
                }
            }
            _ => {}
        }
    }
    document
}

#[test]
fn headings_links_code_and_blocks_are_found_with_their_lines() {
    let text = "# A `b`\n\nSee [c](d.md#e) and `f/g.rs`.\n\n```console\n$ make h\ni\n```\n";

    assert_eq!(
        parse("x.md", text),
        Document {
            path: "x.md".to_owned(),
            headings: vec![(1, "A b".to_owned())],
            links: vec![Located {
                line: 3,
                text: "d.md#e".to_owned()
            }],
            code: vec![
                Located {
                    line: 1,
                    text: "b".to_owned()
                },
                Located {
                    line: 3,
                    text: "f/g.rs".to_owned()
                },
            ],
            blocks: vec![Block {
                line: 5,
                language: "console".to_owned(),
                text: "$ make h\ni\n".to_owned()
            }],
        }
    );
}
