// Mastra. Modes: stream.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

import { MAX_TOKENS, MAX_TURNS, SYSTEM, TEMPERATURE, TOOLS, main } from './desk.mjs';

async function answer(run) {
  const tools = Object.fromEntries(
    Object.entries(TOOLS).map(([name, { argument, description }]) => [
      name,
      createTool({
        id: name,
        description,
        inputSchema: z.object({ [argument]: z.string() }),
        execute: async (given) => run.call(name, { [argument]: given[argument] }),
      }),
    ]),
  );
  const model = createOpenAICompatible({ name: 'hone', baseURL: run.base_url, apiKey: run.api_key })(run.model);
  const agent = new Agent({ id: 'helpdesk', name: 'helpdesk', instructions: SYSTEM, model, tools });
  const settings = {
    maxSteps: MAX_TURNS,
    modelSettings: { temperature: TEMPERATURE, maxOutputTokens: MAX_TOKENS },
  };
  if (!run.modes.has('stream')) return (await agent.generate(run.question, settings)).text;
  return await (await agent.stream(run.question, settings)).text;
}

await main(answer);
