//! Who may write to etcd.

use scheduler::ledger::{Error, Ledger as _};

use crate::{
    backends::Cluster,
    changes::{Model, put},
};

#[test]
fn a_deposed_leader_cannot_write() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/fence");
    let old = cluster
        .open(&location, cluster.elect(&location, "old:1"))
        .unwrap();
    let mut model = Model::new();
    let first = put(&model, "one", Some(3));
    old.commit(std::slice::from_ref(&first)).unwrap();
    model.take(&first);

    let new = cluster
        .open(&location, cluster.elect(&location, "new:1"))
        .unwrap();
    let late = old.commit(&[put(&model, "one", Some(9))]).unwrap_err();

    assert!(matches!(&late, Error::Fenced { by } if by == "new:1"), "{late}");
    assert_eq!(new.load().unwrap(), model.contents());
    let second = put(&model, "two", Some(1));
    new.commit(std::slice::from_ref(&second)).unwrap();
    model.take(&second);
    assert!(old.commit(&[put(&model, "one", Some(9))]).is_err());
    assert_eq!(new.load().unwrap(), model.contents());
}

#[test]
fn a_writer_overtaken_by_another_key_cannot_write() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/overtaken");
    let elected = cluster.elect(&location, "one:1");
    let (first, second) = (
        cluster.open(&location, elected).unwrap(),
        cluster.open(&location, elected).unwrap(),
    );
    let model = Model::new();

    second.commit(&[put(&model, "one", Some(1))]).unwrap();

    let late = first.commit(&[put(&model, "one", Some(2))]).unwrap_err();
    assert!(matches!(late, Error::Fenced { by: _ }), "{late}");
}

#[test]
fn a_process_that_was_not_elected_cannot_even_make_the_ledger() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/unelected");
    let elected = cluster.elect(&location, "one:1");

    let error = cluster.open(&location, elected - 1).unwrap_err();

    assert!(matches!(error, Error::Fenced { by: _ }), "{error}");
}
