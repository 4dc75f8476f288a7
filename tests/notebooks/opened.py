"""What is read of a notebook that was executed."""

import base64

import archives
import nbformat

NOTEBOOKS = archives.ROOT / "notebooks"
SETUP = "install"  # the cell that installs the package, if it is not there


def read(name: str) -> nbformat.NotebookNode:
    """A notebook as it is committed."""
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def with_cells(nb: nbformat.NotebookNode, before: str, after: str) -> nbformat.NotebookNode:
    """A notebook with a cell behind the one that sets it up, and one at its end, whose id is `after`."""
    cells = list(nb.cells)
    place = [cell.id for cell in cells].index(SETUP) + 1
    cells[place:place] = [nbformat.v4.new_code_cell(before)]
    nb.cells = [*cells, nbformat.v4.new_code_cell(after, id="after")]
    return nb


def outputs(nb: nbformat.NotebookNode, cell_id: str) -> list:
    (cell,) = [cell for cell in nb.cells if cell.id == cell_id]
    return cell.outputs


def text(nb: nbformat.NotebookNode, cell_id: str, stream: str = "stdout") -> str:
    return "".join(out.text for out in outputs(nb, cell_id) if out.output_type == "stream" and out.name == stream)


def picture(nb: nbformat.NotebookNode, cell_id: str) -> bytes:
    (image,) = [out.data["image/png"] for out in outputs(nb, cell_id) if "image/png" in out.get("data", {})]
    return base64.b64decode(image)
