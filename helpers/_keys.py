"""Keys pressed in a control of a widget reach that control, and not the notebook around it.

JupyterLab's command mode catches plain keys wherever the focus is in a notebook: an arrow key on a
menu moves to another cell, and `d` twice on a slider deletes the cell. JupyterLab leaves a key
alone where the element that has the focus carries the attribute `data-lm-suppress-shortcuts`.
"""

import ipywidgets as widgets

MARK = "keeps-keys"
# One listener per page sets the attribute when a key arrives, on the element that it arrives at. It
# is called before JupyterLab's own listener, which is on the document. So it holds for controls
# that are drawn later, and a key that JupyterLab should see takes the attribute away again: keys
# with Ctrl, Alt or Cmd such as Ctrl+S, Shift+Enter to run the cell, and Escape to leave a control.
SCRIPT = f"""\
window.keepsKeys ??= event => {{
    const element = event.target;
    if (!(element instanceof Element && element.closest(".{MARK}"))) return;
    const forLab = event.ctrlKey || event.altKey || event.metaKey || event.key === "Escape"
        || (event.shiftKey && event.key === "Enter");
    if (forLab) element.removeAttribute("data-lm-suppress-shortcuts");
    else element.setAttribute("data-lm-suppress-shortcuts", "true");
}};
window.addEventListener("keydown", window.keepsKeys, true);
"""


def keep_keys(board: widgets.Box) -> widgets.Box:
    """The same board, in which every control that is there or comes later keeps its keys.

    The script travels in a hidden widget on the board. A widget's output is trusted, is drawn again
    when the page is loaded again, and is no output of the cell, so notebooks do not store it.
    """
    board.add_class(MARK)
    data = {"application/javascript": SCRIPT}
    output = {"output_type": "display_data", "data": data, "metadata": {}}
    hidden = widgets.Output(outputs=(output,), layout=widgets.Layout(display="none"))
    board.children = (*board.children, hidden)
    return board
