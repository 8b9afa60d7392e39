//! `docs/install.md`, command by command, on a real node: from nothing to a `SIPCluster` that is Ready, with every process of ours in a pod
//! of our own images.

use std::fs;

use sandbox::{installation::Names, node, repository};

use super::{
    commands::steps,
    desk::{Desk, furnished, nothing_was_refused},
};

pub(super) const PAGE: &str = "docs/install.md";

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
    let site = furnished("install", Vec::new(), Vec::new()).await;
    let _names = Names::serve(&site, Vec::new()).await.unwrap();

    for step in &steps {
        desk.follow(PAGE, step, &site).await;
    }

    nothing_was_refused(&site);
}
