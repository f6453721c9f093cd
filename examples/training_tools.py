"""
Cards from your training: Lightning, MLflow, Weights & Biases
=============================================================

A card belongs to the weights of one model, so the best place to make it is where training ends.
"""

import logging
from pathlib import Path

import lightning
import torch
import torch.nn.functional as F
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # less to read
digits = shift()
train = digits.splits.train[0]

# %%
# Lightning
# ---------
# A callback of a few lines writes the card when training ends. The Lightning module is the model, as it is.


class SourceCardCallback(lightning.Callback):
    """Write the source card of the trained model beside its checkpoints."""

    def __init__(self, train_data, path):
        self.train_data, self.path = train_data, path

    def on_fit_end(self, trainer, module):
        if trainer.is_global_zero:
            device = next(module.parameters()).device
            graphmend.card(module, self.train_data.to(device)).save(self.path)


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gnn = GraphSAGE(64, 32, num_layers=2, out_channels=10)

    def forward(self, x, edge_index):
        return self.gnn(x, edge_index)

    def training_step(self, data, index):
        return F.cross_entropy(self(data.x, data.edge_index), data.y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


lightning.seed_everything(0, verbose=False)
module = Digits()
trainer = lightning.Trainer(
    max_epochs=80,
    accelerator="cpu",
    callbacks=[SourceCardCallback(train, "digits.card.safetensors")],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    log_every_n_steps=1,
)
trainer.fit(module, DataLoader([train], batch_size=1))

result = graphmend.mend(module, digits.tests[0], card="digits.card.safetensors")
print(result.verdict)
assert result.verdict.decision == "applied"

# %%
# A model card
# ------------
# ``card.markdown()`` is a section for the page of a model, as on Hugging Face: what the model was trained on, without a row of it.

text = graphmend.SourceCard.load("digits.card.safetensors").markdown()
print(text)
with Path("README.md").open("a", encoding="utf-8") as page:
    page.write(text)

# %%
# MLflow and Weights & Biases
# ---------------------------
# Both keep files and numbers, and a result has both. ``result.summary()`` is plain numbers and texts.

summary = result.summary()
numbers = {
    "flips": summary["verdict"]["flips"],
    "feature_rows_changed": summary["feature_rows_changed"],
    "seconds": summary["seconds"],
}
print(numbers)

# %%
# .. code-block:: python
#
#     mlflow.log_artifact("digits.card.safetensors")
#     mlflow.log_metrics(numbers)
#     mlflow.set_tag("graphmend.decision", result.verdict.decision)
#
# .. code-block:: python
#
#     run.log_artifact("digits.card.safetensors", type="source-card")
#     run.log(numbers)
#     run.summary["graphmend.decision"] = result.verdict.decision
