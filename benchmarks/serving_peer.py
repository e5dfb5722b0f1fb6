"""The same job as `fairmf serve`, written plainly with FastAPI and implicit: a history in, the 20 best items out.

    IMPLICIT_MODEL=model.npz uvicorn benchmarks.serving_peer:app

It has no evenness, no limits and no queue. `benchmarks/serving.py` measures it.
"""

from __future__ import annotations

import os

import numpy as np
import scipy.sparse as sp
from fastapi import FastAPI
from implicit.cpu.als import AlternatingLeastSquares
from pydantic import BaseModel

model = AlternatingLeastSquares.load(os.environ["IMPLICIT_MODEL"])
app = FastAPI()


class Request(BaseModel):
    """A history, and how many items are wanted."""

    history: list[int]
    n: int = 20
    evenness: float | None = None


class Answer(BaseModel):
    """A list, best item first."""

    ids: list[int]
    scores: list[float]


@app.get("/healthz/ready")
def ready() -> dict[str, bool]:
    return {"ready": True}


@app.post("/v1/recommend")
def recommend(request: Request) -> Answer:
    items = np.unique(request.history)
    shape = (1, model.item_factors.shape[0])
    row = sp.csr_matrix((np.ones(len(items), np.float32), items, [0, len(items)]), shape=shape)
    ids, scores = model.recommend(0, row, N=request.n, recalculate_user=True)
    return Answer(ids=ids.tolist(), scores=scores.tolist())
