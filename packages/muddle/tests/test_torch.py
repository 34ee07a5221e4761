"""The ridge head and the loss for any network: gradients, nets side by side, states, the loop."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from muddle.errors import DivergenceError
from muddle.torch import MuddledLoss, RidgeHead, init_penalty, train

WIDTH = 12
TASKS = [
    ("regression", "logistic", 2),
    ("classification", "logistic", 2),
    ("classification", "logistic", 3),
    ("classification", "squared", 3),
]


def make_rows(n_rows=40, n_outputs=1, task="regression", seed=0):
    """Rows of four numbers, and targets that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n_rows, 4, generator=generator)
    signal = torch.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    if task == "classification":
        return X, torch.bucketize(signal, signal.quantile(torch.arange(1, n_outputs) / n_outputs))
    noise = 0.1 * torch.randn(n_rows, n_outputs, generator=generator)
    return X, 5 + 3 * signal[:, None] + noise


def make_body(seed=0, *more):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), *more, nn.Linear(WIDTH, WIDTH), nn.Tanh())


def make_net(task="regression", n_outputs=1, seed=0, **options):
    return RidgeHead(make_body(seed), WIDTH, n_outputs, task=task, **options)


class SideBySide(nn.Module):
    """Several bodies of a kind, with their features as one tensor."""

    def __init__(self, bodies):
        super().__init__()
        self.bodies = nn.ModuleList(bodies)

    def forward(self, rows):
        return torch.stack([body(rows) for body in self.bodies])


def r2(net, X, y):
    net.eval()
    with torch.no_grad():
        return float(1 - ((net(X) - y) ** 2).mean() / y.var(correction=0))


# --- the loss and its gradients ------------------------------------------------------------------


def test_five_lines_train_a_net_of_ones_own():
    X, y = make_rows(200)
    X_new, y_new = make_rows(400, seed=1)
    net, loss = make_net(), MuddledLoss(n_permutations=4)
    init_penalty(net, loss, X, y)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        loss(net, X, y).backward()
        optimizer.step()
    net.fit_head([(X, y)])
    untrained = make_net()
    untrained.standardise(y)
    untrained.fit_head([(X, y)])
    assert r2(net, X_new, y_new) > max(0.7, r2(untrained, X_new, y_new) + 0.1)


@pytest.mark.parametrize("form", ["mean_square", "root_mean_square"])
@pytest.mark.parametrize(("task", "criterion", "n_outputs"), TASKS)
@pytest.mark.parametrize("n_rows", [8, 30])  # fewer rows than features, and more
def test_gradients_agree_with_finite_differences(n_rows, task, criterion, n_outputs, form):
    X, y = make_rows(n_rows, n_outputs, task)
    net = make_net(task, n_outputs, penalty=3.0).double()
    loss = MuddledLoss(3, loss=form, criterion=criterion)
    start = None

    def compute(*_):
        nonlocal start
        if start is None:
            loss(net, X.double(), y)
            start = [generator.manual_seed(5).get_state() for generator in loss._generators]
        loss.set_extra_state({"generators": start})  # the same draws each time
        return loss(net, X.double(), y)

    parameters = [net.log_penalty, *net.body.parameters()]
    assert torch.autograd.gradcheck(compute, parameters, eps=1e-6, atol=1e-6, rtol=1e-5)


def test_gradients_of_columns_are_those_of_the_residual():
    net = make_net(penalty=2.0).double()
    features = torch.randn(1, 20, WIDTH, dtype=torch.float64, requires_grad=True)
    columns = torch.randn(1, 20, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net.residual, (features, columns))


@pytest.mark.parametrize("form", ["mean_square", "root_mean_square"])
def test_the_loss_is_what_the_paper_defines(form):
    X, y = make_rows(30)
    net = make_net(penalty=2.0)
    loss = MuddledLoss(6, loss=form, structured_noise=0.0, dither=0.0, seed=3)
    terms = loss.terms(net, X, y)
    A = net.body(X).detach().double().numpy()
    M = np.eye(30) - A @ np.linalg.solve(A.T @ A + 2 * np.eye(WIDTH), A.T)
    generator = torch.Generator().manual_seed(3)
    orders = [torch.randperm(30, generator=generator).numpy() for _ in range(6)]
    root = np.sqrt if form == "root_mean_square" else np.asarray
    y = y[:, 0].numpy().astype(float)  # not standardised: nobody asked for it
    error, *muddled = [root(np.mean((M @ z) ** 2)) for z in (y, *(y[order] for order in orders))]
    assert float(terms.fit.detach()) == pytest.approx(error, rel=1e-4)
    gap = np.mean(np.abs(root(np.var(y)) - np.array(muddled)))
    assert float(terms.permutation.detach()) == pytest.approx(gap, rel=1e-4)


def test_each_call_draws_anew_and_a_seed_repeats_them():
    X, y = make_rows()
    net = make_net()
    first, again, other = (
        [float(loss(net, X, y).detach()) for _ in range(3)]
        for loss in (MuddledLoss(seed=1), MuddledLoss(seed=1), MuddledLoss(seed=2))
    )
    assert len({*first, *other}) == 6
    assert first == again


def test_permutations_may_be_drawn_once():
    X, y = make_rows()
    net = make_net()
    still = {"structured_noise": 0.0, "dither": 0.0, "seed": 1}
    for redraw, n_losses in ((True, 3), (False, 1)):
        loss = MuddledLoss(redraw=redraw, **still)
        assert len({float(loss(net, X, y).detach()) for _ in range(3)}) == n_losses
    moved = MuddledLoss(redraw=False, seed=1)  # the noise is drawn anew
    assert len({float(moved(net, X, y).detach()) for _ in range(3)}) == 3


@pytest.mark.parametrize(("task", "criterion", "n_outputs"), TASKS)
def test_nets_side_by_side_are_the_nets_alone(task, criterion, n_outputs):
    X, y = make_rows(60, n_outputs, task)
    alone = [make_net(task, n_outputs, seed=seed) for seed in range(3)]
    bodies = copy.deepcopy([net.body for net in alone])
    stacked = RidgeHead(SideBySide(bodies), WIDTH, n_outputs, task=task, n_nets=3)
    together = MuddledLoss(criterion=criterion, seed=7)
    penalties = init_penalty(stacked, together, X, y)
    loss = together(stacked, X, y)
    loss.backward()
    total = 0.0
    for place, net in enumerate(alone):
        own = MuddledLoss(criterion=criterion, seed=7 + place)
        penalty = init_penalty(net, own, X, y)
        assert float(penalty) == pytest.approx(float(penalties[place]), rel=1e-5)
        value = own(net, X, y)
        value.backward()
        total += float(value.detach())
        for mine, other in zip(net.body.parameters(), bodies[place].parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-5)
        expected = stacked.log_penalty.grad[place : place + 1]
        torch.testing.assert_close(net.log_penalty.grad, expected, rtol=1e-3, atol=1e-5)
    assert float(loss.detach()) == pytest.approx(total, rel=1e-4)
    stacked.fit_head([(X, y)])
    for place, net in enumerate(alone):
        net.fit_head([(X, y)])
        torch.testing.assert_close(stacked(X)[place], net(X), rtol=1e-3, atol=1e-4)


def test_solves_are_not_in_half_precision():
    X, y = make_rows(60)
    net, loss = make_net(), MuddledLoss(4, seed=1)
    init_penalty(net, loss, X, y)
    whole = MuddledLoss(4, seed=1)(net, X, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net.body(X).dtype == torch.bfloat16
        half = MuddledLoss(4, seed=1)(net, X, y)
        assert half.dtype == torch.float32
        half.backward()
        net.fit_head([(X, y)])
        assert net(X).dtype == torch.float32
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters())
    assert float(half.detach()) == pytest.approx(float(whole.detach()), rel=0.05)


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_a_compiled_body_and_net_give_the_same():
    X, y = make_rows()
    net = make_net()
    compiled = RidgeHead(torch.compile(net.body, backend="aot_eager"), WIDTH)
    net.fit_head([(X, y)])
    compiled.fit_head([(X, y)])
    torch.testing.assert_close(net(X), compiled(X))
    losses = [MuddledLoss(seed=1)(own, X, y) for own in (net, compiled)]
    torch.testing.assert_close(*losses)
    own = MuddledLoss(seed=1)
    step = torch.compile(lambda: own(net, X, y), backend="aot_eager")
    torch.testing.assert_close(step(), losses[0])
    torch.compiler.reset()


# --- the ridge -----------------------------------------------------------------------------------


def test_a_penalty_that_is_too_small_is_raised_and_counted():
    X, y = make_rows(60)
    net = RidgeHead(nn.Linear(4, WIDTH), WIDTH, penalty=1e-30)  # rank 5
    MuddledLoss()(net, X, y).backward()
    assert net.n_recoveries > 0
    assert float(net.log_penalty.detach().exp()) > 1e-8
    assert bool(net.log_penalty.grad.isfinite().all())


@pytest.mark.parametrize("n_rows", [8, 100])
def test_the_head_is_the_ridge_of_all_rows_whatever_the_batches(n_rows):
    X, y = make_rows(n_rows, 2)
    net = make_net(n_outputs=2, penalty=5.0)
    net.standardise(y)
    whole = net.fit_head([(X, y)]).weight.clone()
    pieces = net.fit_head(list(zip(X.split(7), y.split(7), strict=True))).weight
    torch.testing.assert_close(whole, pieces, rtol=1e-4, atol=1e-6)
    A = net.body(X).detach().double()
    labels = ((y - y.mean(0)) / y.std(0, correction=0)).double()
    wanted = torch.linalg.solve(A.T @ A + 5 * torch.eye(WIDTH), A.T @ labels)
    torch.testing.assert_close(whole[0].double(), wanted, rtol=1e-4, atol=1e-6)
    predicted = (A @ wanted) * y.std(0, correction=0) + y.mean(0)
    torch.testing.assert_close(net(X).double(), predicted, rtol=1e-4, atol=1e-4)


def test_the_penalty_grows_with_the_rows():
    X, y = make_rows(120)
    net = make_net(penalty=5.0)
    MuddledLoss()(net, X[:30], y[:30])
    A = net.body(X).detach().double()
    found = net.fit_head([(X, y)]).weight[0].double()
    wanted = torch.linalg.solve(A.T @ A + 20 * torch.eye(WIDTH), A.T @ y.double())
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_head_is_fitted_as_the_body_predicts():
    X, y = make_rows(100)
    body = make_body(0, nn.BatchNorm1d(WIDTH), nn.Dropout(0.5))
    net, loss = RidgeHead(body, WIDTH), MuddledLoss()
    for _ in range(3):
        loss(net, X, y)
    before = copy.deepcopy(body[2].state_dict())
    net.train()
    first = net.fit_head([(X, y)]).weight.clone()
    assert net.training
    assert body[3].training
    torch.testing.assert_close(net.fit_head([(X, y)]).weight, first)  # nothing was dropped
    assert all(torch.equal(before[name], own) for name, own in body[2].state_dict().items())


def test_classes_have_a_score_each():
    for n_classes in (2, 3):
        X, y = make_rows(300, n_classes, "classification")
        net = make_net("classification", n_classes)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
        train(net, MuddledLoss(4), [(X, y)], n_epochs=60, optimizer=optimizer)
        scores = net(X)
        assert scores.shape == (300, n_classes)
        assert float((scores.argmax(1) == y).float().mean()) > 0.75


def test_the_state_goes_on_elsewhere():
    X, y = make_rows()
    net, loss = make_net(), MuddledLoss()
    init_penalty(net, loss, X, y)
    loss(net, X, y).backward()
    net.fit_head([(X, y)])
    other, same = make_net(seed=5), MuddledLoss()
    other.load_state_dict(net.state_dict())
    same.load_state_dict(loss.state_dict())
    torch.testing.assert_close(other(X), net(X), rtol=0, atol=0)
    assert other._batch_rows == net._batch_rows == 40
    assert float(same(other, X, y).detach()) == float(loss(net, X, y).detach())


def test_a_look_at_the_loss_changes_nothing():
    X, y = make_rows(120)
    net, loss = make_net(penalty=5.0), MuddledLoss()
    init_penalty(net, loss, X, y)  # of more rows than the batches
    loss(net, X[:30], y[:30]).backward()
    first = net.fit_head([(X, y)]).weight.clone()
    before = net.log_penalty.detach().clone()
    with torch.no_grad():
        loss(net.eval(), X, y)
    torch.testing.assert_close(net.fit_head([(X, y)]).weight, first)
    assert torch.equal(net.log_penalty, before)
    A = net.body(X).detach().double()
    labels = ((y - y.mean()) / y.std(correction=0)).double()
    ridge = 4 * float(before.exp()) * torch.eye(WIDTH)
    wanted = torch.linalg.solve(A.T @ A + ridge, A.T @ labels)
    torch.testing.assert_close(first[0].double(), wanted, rtol=1e-3, atol=1e-5)


def test_modules_that_were_frozen_stay_frozen():
    X, y = make_rows(60)
    body = make_body(0, nn.BatchNorm1d(WIDTH))
    body[2].eval()
    net = RidgeHead(body, WIDTH)
    train(net, MuddledLoss(2), [(X, y)], n_epochs=2)
    assert (net.training, body[0].training, body[2].training) == (True, True, False)
    assert int(body[2].num_batches_tracked) == 0


# --- errors --------------------------------------------------------------------------------------


class Wrong(nn.Module):
    def forward(self, rows):
        return torch.zeros(len(rows), WIDTH + 1)


def test_wrong_use_says_what_must_hold():
    X, y = make_rows()
    net, loss = make_net(), MuddledLoss()
    with pytest.raises(RuntimeError, match="call fit_head"):
        net(X)
    with pytest.raises(ValueError, match=r"features of shape \(N, 12\), got \(40, 13\)"):
        loss(RidgeHead(Wrong(), WIDTH), X, y)
    with pytest.raises(ValueError, match=r"features of shape \(2, N, 12\), got \(40, 12\)"):
        loss(make_net(n_nets=2), X, y)
    with pytest.raises(ValueError, match=r"targets must be of shape \(40,\), got \(39, 1\)"):
        loss(net, X, y[:-1])
    with pytest.raises(ValueError, match=r"targets must be of shape \(40, 2\), got \(40, 1\)"):
        loss(make_net(n_outputs=2), X, y)
    classes = make_net("classification", 3)
    with pytest.raises(ValueError, match=r"codes of classes \(torch.long\), got torch.float32"):
        loss(classes, X, y[:, 0])
    with pytest.raises(ValueError, match="codes from 0 to 2, got 3"):
        loss(classes, X, torch.full((40,), 3))
    with pytest.raises(ValueError, match="dither must be 0 with the logistic loss"):
        MuddledLoss(dither=0.1)(classes, X, torch.arange(40) % 3)
    with pytest.raises(ValueError, match="batches must give rows, got none"):
        net.fit_head([])
    with pytest.raises(ValueError, match="batches must give rows, got none"):
        train(make_net(), loss, [], n_epochs=1)
    with pytest.raises(ValueError, match="targets must be finite"):
        loss(net, X, y * torch.nan)
    with pytest.raises(ValueError, match="targets must have 2 columns, got 1"):
        init_penalty(make_net(n_outputs=2), loss, X, y)
    with pytest.raises(DivergenceError, match="features of the body must be finite"):
        init_penalty(net, loss, X * torch.nan, y)
    with pytest.raises(DivergenceError, match="could not be solved: the features are not finite"):
        loss(net, X * torch.inf, y)
    with pytest.raises(DivergenceError, match="output layer could not be solved"):
        net.fit_head([(X * torch.inf, y)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "ranking"}, "task must be"),
        ({"task": "classification"}, "n_outputs must be at least 2"),
        ({"n_nets": 0}, "n_nets must be at least 1"),
        ({"penalty": 0.0}, "penalty must be above 0"),
    ],
)
def test_wrong_parameters_of_a_net_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RidgeHead(make_body(), WIDTH, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_permutations": -1}, "n_permutations must be at least 0"),
        ({"loss": "root"}, "loss must be"),
        ({"criterion": "square"}, "criterion must be"),
        ({"structured_noise": -1.0}, "structured_noise must be at least 0"),
    ],
)
def test_wrong_parameters_of_the_loss_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MuddledLoss(**options)


# --- the loop ------------------------------------------------------------------------------------


def make_run():
    """A net, its loss, and an optimizer and scheduler by which they are trained."""
    net, loss = make_net(), MuddledLoss(4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    return net, loss, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)


def go(run, batches, n_epochs, **options):
    net, loss, optimizer, scheduler = run
    options = {"optimizer": optimizer, "scheduler": scheduler, **options}
    return train(net, loss, batches, n_epochs=n_epochs, **options)


def test_a_run_goes_on_from_its_checkpoint_with_the_same_bits(tmp_path):
    X, y = make_rows(90)
    batches = list(zip(X.split(30), y.split(30), strict=True))
    whole, parts = make_run(), make_run()
    expected = go(whole, batches, 6)
    path = tmp_path / "run.pt"
    seen = []
    go(parts, batches, 4, checkpoint=path, after_epoch=lambda *told: seen.append(told))
    assert seen == list(enumerate(expected[:4], start=1))
    again = make_run()
    assert go(again, batches, 6, checkpoint=path) == expected
    torch.testing.assert_close(again[0](X), whole[0](X), rtol=0, atol=0)
    assert again[3].last_epoch == 6
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


def test_a_file_that_is_no_checkpoint_of_the_same_parts_is_refused(tmp_path):
    X, y = make_rows()
    path = tmp_path / "run.pt"
    net, loss, optimizer, _ = make_run()
    train(net, loss, [(X, y)], n_epochs=1, optimizer=optimizer, checkpoint=path)
    with pytest.raises(ValueError, match=r"run.pt must be a checkpoint .* got no scheduler"):
        go(make_run(), [(X, y)], 2, checkpoint=path)
    other = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"checkpoint of the same parts, got optimizer Adam"):
        train(net, loss, [(X, y)], n_epochs=2, optimizer=other, checkpoint=path)
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"hello"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"must be a checkpoint of `train`"):
            train(net, loss, [(X, y)], n_epochs=2, checkpoint=path)
    with pytest.raises(FileNotFoundError):
        train(net, loss, [(X, y)], n_epochs=1, checkpoint=tmp_path / "absent" / "run.pt")


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    X, y = make_rows()
    path = tmp_path / "run.pt"
    run = make_run()
    go(run, [(X, y)], 2, checkpoint=path)
    before = path.read_bytes()
    again = make_run()
    monkeypatch.setattr(again[1], "forward", lambda *_: torch.tensor(torch.nan))
    with pytest.raises(DivergenceError, match="the loss was nan in epoch 3"):
        go(again, [(X, y)], 5, checkpoint=path)
    assert path.read_bytes() == before


def test_dropout_schedulers_and_rates_of_numpy_go_on_as_well(tmp_path):
    X, y = make_rows(60)

    def make():
        net = RidgeHead(make_body(0, nn.Dropout(0.3)), WIDTH)
        optimizer = torch.optim.Adam(net.parameters(), lr=np.float64(0.01))
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        torch.manual_seed(7)
        return net, MuddledLoss(2), optimizer, scheduler

    expected = go(make(), [(X, y)], 5)
    go(make(), [(X, y)], 2, checkpoint=tmp_path / "run.pt")
    assert go(make(), [(X, y)], 5, checkpoint=tmp_path / "run.pt") == expected


def test_a_loader_of_torch_is_gone_through():
    X, y = make_rows(64)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(X, y), batch_size=32, shuffle=True
    )
    net = make_net()
    assert len(train(net, MuddledLoss(4), loader, n_epochs=2)) == 2
    assert net(X).shape == (64, 1)
