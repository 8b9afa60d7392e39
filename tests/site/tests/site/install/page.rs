//! `docs/install.md`, command by command, on a real node: from nothing to a `SIPCluster` that is Ready, with every process of ours in a pod
//! of our own images.

use std::fs;

use sandbox::{audit::Entry, node, repository};

use super::{
    commands::steps,
    desk::{Desk, furnished, pods},
    names::Names,
};

const PAGE: &str = "docs/install.md";
/// Whose deletion begins the removal, as resources of the API.
const REMOVED_FIRST: [&str; 3] = ["namespaces", "clusterroles", "clusterrolebindings"];

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_works_on_a_real_node() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 6, "{steps:?}");
    let desk = Desk::new();
    let site = furnished("install", Vec::new()).await;
    let _names = Names::serve(&site, Vec::new()).await;

    for step in &steps {
        let ran = tokio::task::block_in_place(|| desk.run(&step.script, &site));
        let place = format!("{PAGE}:{}", step.line);
        match ran {
            Ok(printed) => assert_eq!(
                step.missing(&printed),
                None,
                "{place}: {}\n{printed}",
                step.script
            ),
            Err(printed) => panic!("{place}: {}\n{printed}\n{}", step.script, pods(&site).await),
        }
    }

    // At the end of the page, agents lose their rights some time before they end.
    let is_removal = |entry: &Entry| {
        let object = entry.object_ref.as_ref();
        entry.verb == "delete" && object.is_some_and(|object| REMOVED_FIRST.contains(&&*object.resource))
    };
    let entries = site.audit_log().unwrap().into_iter();
    let entries = entries.take_while(|entry| !is_removal(entry));
    let refused: Vec<Entry> = entries
        .filter(Entry::is_forbidden)
        .filter(|entry| entry.user.username.contains(":sip-system:"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
