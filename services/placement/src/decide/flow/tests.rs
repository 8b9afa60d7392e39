use super::*;

#[test]
fn a_path_is_rerouted_when_a_later_unit_needs_it() {
    let mut builder = Builder::default();
    let [a, b, x, y, sink] = std::array::from_fn(|_| builder.node());
    let a_x = builder.edge(a, x, 1, Cost::fixed(1));
    let a_y = builder.edge(a, y, 1, Cost::fixed(5));
    let b_x = builder.edge(b, x, 1, Cost::fixed(1));
    builder.edge(x, sink, 1, Cost::fixed(0));
    builder.edge(y, sink, 1, Cost::fixed(0));
    let mut network = builder.build(sink);
    assert_eq!(network.send(a, 1), 1);
    assert_eq!((network.flow(a_x), network.flow(a_y)), (1, 0));
    assert_eq!(network.send(b, 1), 1);
    assert_eq!(
        (network.flow(a_x), network.flow(a_y), network.flow(b_x)),
        (0, 1, 1)
    );
    assert_eq!(network.send(b, 1), 0);
    let side = network.reachable(&[b]);
    assert_eq!(
        (side[at(b)], side[at(a)]),
        (true, false),
        "b has one edge and it is full"
    );
}

#[test]
fn convex_prices_level_the_load() {
    let mut builder = Builder::default();
    let [s, x, y, sink] = std::array::from_fn(|_| builder.node());
    let to_x = builder.edge(s, x, 9, Cost::convex(1, 2));
    let to_y = builder.edge(s, y, 9, Cost::convex(1, 0));
    builder.edge(x, sink, 9, Cost::fixed(0));
    builder.edge(y, sink, 9, Cost::fixed(0));
    let mut network = builder.build(sink);
    assert_eq!(network.send(s, 4), 4);
    assert_eq!((network.flow(to_x), network.flow(to_y)), (1, 3));
}
