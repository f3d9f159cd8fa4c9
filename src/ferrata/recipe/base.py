"""What all sections of a recipe share: how they are checked, and kinds of numbers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0, le=10**12)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Bonus = Annotated[float, Field(ge=0.0)]
Cost = Annotated[float, Field(le=0.0)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]


class Section(BaseModel):
    """Common behaviour of all sections: unknown keys are refused, values cannot be changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
