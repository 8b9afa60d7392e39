//! One crate as a tree of modules: what each declares and imports, and which paths its code names. Read from the sources alone, as the
//! compiler would without tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, Item, ItemMod, UseTree};

/// Number of a module in a [`Crate`].
pub(super) type Id = usize;

/// The modules of one target, the root first.
#[derive(Debug, Default)]
pub(super) struct Crate {
    pub(super) modules: Vec<Module>,
}

/// A module: in a file of its own, or inside the file of its parent.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: PathBuf,
    pub(super) parent: Option<Id>,
    pub(super) children: BTreeMap<String, Id>,
    /// Names that it brings in, with the path of each.
    pub(super) imports: BTreeMap<String, Vec<String>>,
    /// Paths whose every name it brings in.
    pub(super) globs: Vec<Vec<String>>,
    /// Names that it declares itself.
    pub(super) declared: BTreeSet<String>,
    /// Every path of more than one name in its code, those of its imports included.
    pub(super) paths: BTreeSet<Vec<String>>,
}

impl Crate {
    /// Reads a target from its root file.
    pub(super) fn read(root: &Path) -> Self {
        let mut all = Self::default();
        let directory = root.parent().expect("a file is in a directory");
        all.file(root, directory, None);
        all
    }

    /// A crate of these files, the root first; for tests.
    pub(super) fn from_texts(texts: &[(&str, &str)]) -> Self {
        let mut all = Self::default();
        all.text(texts, "", None);
        all
    }

    fn text(&mut self, texts: &[(&str, &str)], name: &str, parent: Option<Id>) -> Id {
        let (_, text) = texts.iter().find(|(file, _)| *file == name).expect("a text");
        let items = syn::parse_file(text).expect("Rust").items;
        let id = self.module(Path::new(name).to_owned(), parent);
        for child in self.items(id, items) {
            let path = if name.is_empty() {
                child.clone()
            } else {
                format!("{name}::{child}")
            };
            let child_id = self.text(texts, &path, Some(id));
            self.modules[id].children.insert(child, child_id);
        }
        id
    }

    fn module(&mut self, file: PathBuf, parent: Option<Id>) -> Id {
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            declared: BTreeSet::new(),
            paths: BTreeSet::new(),
        });
        self.modules.len() - 1
    }

    /// Reads a file and those of its modules; `directory` has the latter.
    fn file(&mut self, file: &Path, directory: &Path, parent: Option<Id>) -> Id {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let items = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
            .items;
        let id = self.module(file.to_owned(), parent);
        for name in self.items(id, items) {
            let own = directory.join(&name);
            let (flat, nested) = (own.with_extension("rs"), own.join("mod.rs"));
            let child = self.file(if flat.is_file() { &flat } else { &nested }, &own, Some(id));
            self.modules[id].children.insert(name, child);
        }
        id
    }

    /// Takes in the items of a module; returns the names of its modules that have files of their own.
    fn items(&mut self, id: Id, items: Vec<Item>) -> Vec<String> {
        let mut in_files = Vec::new();
        for item in items {
            if is_test(attributes(&item)) {
                continue;
            }
            match item {
                Item::Mod(ItemMod {
                    ident, content: None, ..
                }) => in_files.push(ident.to_string()),
                Item::Mod(ItemMod {
                    ident,
                    content: Some((_, items)),
                    ..
                }) => {
                    let inside = self.module(self.modules[id].file.clone(), Some(id));
                    self.modules[id].children.insert(ident.to_string(), inside);
                    let deeper = self.items(inside, items);
                    assert!(
                        deeper.is_empty(),
                        "a module in a file of its own within an inline one"
                    );
                }
                Item::Use(item) => self.modules[id].import(&item.tree, &mut Vec::new()),
                item => {
                    self.modules[id].declared.extend(name(&item));
                    paths(item.to_token_stream(), &mut self.modules[id].paths);
                }
            }
        }
        in_files
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree, prefix: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix);
                }
            }
            UseTree::Glob(_) => {
                self.paths.insert(prefix.clone());
                self.globs.push(prefix.clone());
            }
            UseTree::Name(name) => self.imported(&name.ident.to_string(), None, prefix),
            UseTree::Rename(rename) => {
                self.imported(&rename.ident.to_string(), Some(rename.rename.to_string()), prefix);
            }
        }
    }

    fn imported(&mut self, last: &str, alias: Option<String>, prefix: &[String]) {
        let mut path = prefix.to_vec();
        let name = alias.unwrap_or_else(|| match (last, prefix.last()) {
            ("self", Some(module)) => module.clone(),
            _ => last.to_owned(),
        });
        if last != "self" {
            path.push(last.to_owned());
        }
        self.paths.insert(path.clone());
        self.imports.insert(name, path);
    }
}

/// Whether an item exists in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text: String = attribute.meta.to_token_stream().to_string();
        attribute.path().is_ident("cfg") && text.contains("test") && !text.contains("not")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Every `a::b::c` in the tokens, those within macros included: only tokens are the same in both.
fn paths(tokens: TokenStream, found: &mut BTreeSet<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    finish(&mut path, found);
                }
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                finish(&mut path, found);
                colons = 0;
                paths(group.stream(), found);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {
                finish(&mut path, found);
                colons = 0;
            }
        }
    }
    finish(&mut path, found);
}

fn finish(path: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    let path = std::mem::take(path);
    if path.len() > 1 {
        found.insert(path);
    }
}
