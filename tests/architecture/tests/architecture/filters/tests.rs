//! The tests of targets by their sources, named as libtest names them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta};

/// The tests of a target.
#[derive(Debug, Default)]
pub(super) struct Tests {
    /// Module path and function.
    pub(super) names: BTreeSet<String>,
    /// Texts of all its sources.
    texts: Vec<String>,
}

impl Tests {
    /// Of the target with this root file.
    pub(super) fn read(root: &Path) -> Self {
        let mut tests = Self::default();
        let directory = root.parent().expect("a file is in a directory");
        tests.file(root, directory, "");
        tests
    }

    /// Whether libtest runs a test for this filter.
    pub(super) fn is_matched(&self, filter: &str) -> bool {
        self.names.iter().any(|name| name.contains(filter))
    }

    /// Whether a source has the name of this variable as a text.
    pub(super) fn reads(&self, variable: &str) -> bool {
        let quoted = format!("\"{variable}\"");
        self.texts.iter().any(|text| text.contains(&quoted))
    }

    /// Adds those of a file; `directory` has the files of its modules.
    fn file(&mut self, file: &Path, directory: &Path, module: &str) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let items = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
            .items;
        self.texts.push(text);
        let own = file.parent().expect("a file is in a directory");
        self.items(items, (own, directory), module);
    }

    /// Adds those of a module; `own` has its file, `directory` those of its modules.
    fn items(&mut self, items: Vec<Item>, (own, directory): (&Path, &Path), module: &str) {
        let within = |name: &str| match module {
            "" => name.to_owned(),
            module => format!("{module}::{name}"),
        };
        for item in items {
            match item {
                Item::Mod(ItemMod {
                    ident,
                    content: Some((_, items)),
                    ..
                }) => {
                    let name = ident.to_string();
                    let deeper = directory.join(&name);
                    self.items(items, (&deeper, &deeper), &within(&name));
                }
                Item::Mod(ItemMod { ident, attrs, .. }) => {
                    let name = ident.to_string();
                    let (file, deeper) = place(&name, &attrs, own, directory);
                    self.file(&file, &deeper, &within(&name));
                }
                Item::Fn(function) if function.attrs.iter().any(is_test) => {
                    self.names.insert(within(&function.sig.ident.to_string()));
                }
                Item::Macro(item) => {
                    let found = in_macro(item.mac.tokens);
                    self.names.extend(found.iter().map(|name| within(name)));
                }
                _ => {}
            }
        }
    }
}

/// Where the file of a module is, and where those of its modules are.
fn place(name: &str, attributes: &[Attribute], own: &Path, directory: &Path) -> (PathBuf, PathBuf) {
    let given = attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(path), ..
            }) => Some(own.join(path.value())),
            _ => None,
        },
        _ => None,
    });
    if let Some(file) = given {
        let directory = file.parent().map(Path::to_owned).unwrap_or_default();
        return (file, directory);
    }
    let nested = directory.join(name);
    let flat = nested.with_extension("rs");
    let file = if flat.is_file() {
        flat
    } else {
        nested.join("mod.rs")
    };
    (file, nested)
}

/// `#[test]`, and those of other crates that are called so.
fn is_test(attribute: &Attribute) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|segment| segment.ident == "test")
}

/// Functions in the body of a macro that come after `#[test]`.
fn in_macro(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let (mut marked, mut named) = (false, false);
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.to_token_stream().to_string().replace(' ', "") == "[test]" => {
                marked = true;
            }
            TokenTree::Ident(ident) if named => {
                found.push(ident.to_string());
                (marked, named) = (false, false);
            }
            TokenTree::Ident(ident) => named = marked && ident == "fn",
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

#[test]
fn tests_are_named_by_modules_and_functions() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "main.rs",
            "mod a;\nmod b;\n#[test]\nfn first() {}\nfn no_test() { env(\"SOAK_X\") }\n",
        ),
        (
            "a.rs",
            "mod c;\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn second() {}\n",
        ),
        (
            "a/c.rs",
            "#[cfg(test)]\nmod tests {\n    #[test]\n    fn third() {}\n}\n",
        ),
        ("b/mod.rs", "#[path = \"../elsewhere.rs\"]\nmod d;\n"),
        (
            "elsewhere.rs",
            "proptest! {\n    #![config(x)]\n    #[test]\n    fn fourth(x in 0..3) { fn inner() {} }\n}\n",
        ),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let tests = Tests::read(&folder.path().join("main.rs"));

    let names: Vec<&str> = tests.names.iter().map(String::as_str).collect();
    assert_eq!(
        names,
        ["a::c::tests::third", "a::second", "b::d::fourth", "first"]
    );
    assert!(tests.is_matched("c::tests") && !tests.is_matched("no_test"));
    assert!(tests.reads("SOAK_X") && !tests.reads("SOAK"));
}
