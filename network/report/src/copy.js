// Shows a button behind each command of a finding, which copies the command. Without scripts there is none.
function showCopyButtons(root) {
  for (const button of root.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.onclick = async () => {
      const command = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch {
        // A page without TLS has no clipboard.
        getSelection().selectAllChildren(command);
        button.textContent = "Selected";
      }
    };
  }
}
